"""Rights of the chart that only tests outside the slice use. The slice is the e2e tests that CI runs."""

from __future__ import annotations

from e2e.rights import UsedElsewhere

OPERATOR = "convoy-operator"
INTEGRATION = "tests/integration"
RARE = f"{INTEGRATION}/operator/test_rights.py"
GUARDING = f"{INTEGRATION}/operator/test_guarding.py::test_a_slow_node_is_cordoned_and_its_pod_is_evicted"
SPOT = (
    f"{INTEGRATION}/operator/test_spotpool.py"
    "::test_a_noticed_node_is_tainted_and_drained_and_its_loss_is_counted"
)
STORES = (
    f"{INTEGRATION}/operator/test_stores.py"
    "::test_an_agent_probes_a_store_and_probes_again_when_its_keys_change"
)
SERVING = f"{INTEGRATION}/operator/test_serving.py"
SCALING = f"{INTEGRATION}/operator/test_serving_scaling.py"
NETWORK = f"{INTEGRATION}/operator/test_network_policies.py"
GANGS = f"{INTEGRATION}/operator/test_gangs.py"
EXPERIMENT = f"{INTEGRATION}/operator/test_experiment.py::test_an_experiment_registers_runs_and_analyses"
QUEUES = f"{INTEGRATION}/operator/test_queues.py::test_a_job_waits_for_quota_and_its_end_frees_it"
NO_KUEUE = "the cluster of the slice has no Kueue"
USED_ELSEWHERE = (
    UsedElsewhere(
        OPERATOR, "get list watch create patch delete", "workloads.kueue.x-k8s.io", NO_KUEUE, QUEUES
    ),
    UsedElsewhere(OPERATOR, "patch", "workloads/status.kueue.x-k8s.io", NO_KUEUE, QUEUES),
    UsedElsewhere(
        OPERATOR,
        "list watch",
        "localqueues.kueue.x-k8s.io clusterqueues.kueue.x-k8s.io resourceflavors.kueue.x-k8s.io "
        "topologies.kueue.x-k8s.io workloadpriorityclasses.kueue.x-k8s.io",
        NO_KUEUE,
        QUEUES,
    ),
    UsedElsewhere(
        OPERATOR,
        "get list watch create patch delete",
        "podgroups.scheduling.x-k8s.io podgroups.scheduling.volcano.sh",
        "the cluster of the slice has no gang scheduler",
        f"{GANGS}::test_a_backend_that_appears_later_gets_the_waiting_job",
    ),
    UsedElsewhere(
        OPERATOR,
        "get list watch create patch delete",
        "podgroups.scheduling.k8s.io",
        "the API server of the slice serves no PodGroups",
        f"{GANGS}::test_a_native_gang_is_created_and_placed",
    ),
    UsedElsewhere(
        OPERATOR,
        "get create delete",
        "trainingjobs.convoy.dev servingjobs.convoy.dev",
        "ServingJobs of Experiments; the slice has only simulations",
        EXPERIMENT,
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "update",
        "experiments/finalizers.convoy.dev",
        "an admission plugin of this cluster checks it when a job is created with an owner",
        EXPERIMENT,
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get delete",
        "services poddisruptionbudgets.policy controllerrevisions.apps",
        "used only for objects of other owners, removed roles, and revisions beyond the last 5",
        f"{SERVING}::test_a_job_serves_scales_and_rolls",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get create patch delete",
        "networkpolicies.networking.k8s.io",
        "used only with networkPolicies.enabled",
        f"{NETWORK}::test_the_api_server_stores_the_policies_of_both_kinds",
    ),
    UsedElsewhere(
        OPERATOR,
        "get create patch delete",
        "horizontalpodautoscalers.autoscaling",
        "used only with scaling.mode HorizontalPodAutoscaler",
        f"{SCALING}::test_a_horizontal_pod_autoscaler_is_made_kept_and_removed",
    ),
    UsedElsewhere(
        OPERATOR,
        "patch",
        "pods/status",
        "no replica of the slice is on a node that dies",
        f"{SERVING}::test_pods_of_a_deleted_node_are_not_ready_and_are_replaced",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "update",
        "servingjobs/finalizers.convoy.dev",
        "an admission plugin of this cluster checks it when an object is created with an owner",
        f"{SERVING}::test_a_job_serves_scales_and_rolls",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "update",
        "trainingjobs/finalizers.convoy.dev",
        "an admission plugin of this cluster checks it when a pod is created with an owner",
        "e2e/tests/test_life.py::test_an_applied_job_succeeds_and_its_held_out_loss_falls",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get",
        "pods",
        "a pod with the name already exists: a foreign one, or the operator's own after a lost response",
        f"{RARE}::test_an_existing_pod_of_the_same_name_is_read_and_not_changed",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get",
        "nodehealths.convoy.dev hardwareclasses.convoy.dev",
        "another leader has just created the object",
        f"{RARE}::test_an_object_created_by_another_leader_is_read",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "list",
        "events",
        "used only for a pod that starts late, which is rare in the slice",
        f"{INTEGRATION}/operator/test_mutated_pods.py::test_causes_reported_only_by_events_reach_the_job",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "patch",
        "pods",
        "used only if a container runs on after its ranks ended",
        f"{INTEGRATION}/operator/test_mutated_pods.py::test_a_sidecar_is_ended_with_the_job_and_its_pod_stays",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "patch",
        "nodes/status",
        "a node's condition is set only if a sweep tests it under a GuardPolicy of mode Act",
        GUARDING,
        uncertain=True,
    ),
    UsedElsewhere(OPERATOR, "create", "pods/eviction", "no GuardPolicy of the slice drains a node", GUARDING),
    UsedElsewhere(
        OPERATOR,
        "create",
        "healthsweeps.convoy.dev",
        "the tests of the slice create their sweeps themselves",
        f"{INTEGRATION}/operator/test_sweeping.py::test_nodes_that_join_are_gated_swept_and_admitted",
    ),
    UsedElsewhere(
        OPERATOR,
        "delete",
        "healthsweeps.convoy.dev hardwareclasses.convoy.dev",
        "the objects are kept for at least a minute, or for a year",
        f"{RARE}::test_obsolete_objects_are_deleted",
    ),
    UsedElsewhere(
        OPERATOR,
        "delete",
        "guardpolicies.convoy.dev",
        "used only with guard.defaultPolicy=None",
        f"{INTEGRATION}/operator/test_default_policy.py::test_the_policy_follows_the_value_of_the_chart",
        name="default",
    ),
    UsedElsewhere(OPERATOR, "patch", "spotpools/status.convoy.dev", "the slice has no SpotPool", SPOT),
    UsedElsewhere(OPERATOR, "get", "configmaps", "the slice has no SpotPool with a price trace", SPOT),
    UsedElsewhere(OPERATOR, "get", "secrets", "no CheckpointStore of the slice has credentials", STORES),
    UsedElsewhere(
        "convoy-uninstall",
        "list",
        "experiments.convoy.dev trainingjobs.convoy.dev servingjobs.convoy.dev pods nodes",
        "the slice deletes its cluster without an uninstallation",
        f"{INTEGRATION}/chart/test_uninstall.py::test_the_uninstall_hook_uses_exactly_its_rights",
    ),
)
"""Rights that the slice (the e2e tests that CI runs) does not use, each with the reason and a test that
uses it.
"""
