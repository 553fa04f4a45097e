"""Rights of the chart that only tests outside the slice use. The slice is the e2e tests that CI runs."""

from __future__ import annotations

from e2e.rights import UsedElsewhere

OPERATOR = "convoy-operator"
INTEGRATION = "tests/integration"
RARE = f"{INTEGRATION}/operator/test_rights.py"
GUARDING = f"{INTEGRATION}/operator/test_guarding.py::test_a_slow_node_is_marked_and_its_pod_leaves"
STORES = (
    f"{INTEGRATION}/operator/test_stores.py"
    "::test_a_store_is_tried_by_an_agent_and_again_when_its_keys_are_renewed"
)
USED_ELSEWHERE = (
    UsedElsewhere(
        OPERATOR,
        "update",
        "trainingjobs/finalizers.convoy.dev",
        "an admission plugin of this cluster checks it when a pod is created with an owner",
        "e2e/tests/test_life.py::test_a_job_goes_from_apply_to_succeeded_and_its_held_out_loss_falls",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get",
        "pods",
        "a pod with the name already exists: a foreign one, or the operator's own after a lost response",
        f"{RARE}::test_a_pod_that_has_the_name_already_is_read_and_left_alone",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "get",
        "nodehealths.convoy.dev hardwareclasses.convoy.dev",
        "another leader has just created the object",
        f"{RARE}::test_an_object_that_another_leader_has_made_is_read",
        uncertain=True,
    ),
    UsedElsewhere(
        OPERATOR,
        "list",
        "events",
        "used only for a pod that starts late, which is rare in the slice",
        f"{INTEGRATION}/operator/test_mutated_pods.py::test_what_only_events_tell_reaches_the_job",
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
    UsedElsewhere(OPERATOR, "create", "pods/eviction", "no GuardPolicy of the slice drains a node", GUARDING),
    UsedElsewhere(
        OPERATOR,
        "create",
        "healthsweeps.convoy.dev",
        "the tests of the slice create their sweeps themselves",
        f"{INTEGRATION}/operator/test_sweeping.py::test_nodes_that_join_are_gated_swept_and_let_in",
    ),
    UsedElsewhere(
        OPERATOR,
        "delete",
        "healthsweeps.convoy.dev hardwareclasses.convoy.dev",
        "the objects are kept for at least a minute, or for a year",
        f"{RARE}::test_what_nobody_needs_any_more_is_deleted",
    ),
    UsedElsewhere(OPERATOR, "get", "secrets", "the slice has no CheckpointStore", STORES),
    UsedElsewhere(
        OPERATOR, "patch", "checkpointstores/status.convoy.dev", "the slice has no CheckpointStore", STORES
    ),
    UsedElsewhere(
        "convoy-uninstall",
        "list",
        "trainingjobs.convoy.dev pods nodes",
        "the slice deletes its cluster without an uninstallation",
        f"{INTEGRATION}/chart/test_uninstall.py"
        "::test_it_uses_every_right_that_the_chart_gives_it_and_asks_for_no_other",
    ),
)
"""Rights that the slice (the e2e tests that CI runs) does not use, each with the reason and a test that
uses it.
"""
