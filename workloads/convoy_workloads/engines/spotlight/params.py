"""Parameters of the engine spotlight. `python -m convoy_workloads.engines.spotlight.params` prints their JSON
Schema.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from convoy_crds.meta import Model

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Hours = Annotated[float, Field(gt=0, le=10_000)]
Price = Annotated[float, Field(ge=0, le=1_000_000)]
TrainOn = Literal["fresh", "explored"]
Selection = Literal["fullSeed", "initialLatent", "none"]
PlannerName = Literal["gain", "uniform"]
Choose = Literal["maxVariance", "first"]
Degree = Literal[1, 2, 4]
ALL_DEGREES: list[Degree] = [1, 2, 4]


class _Problem(Model):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        use_attribute_docstrings=True,
        frozen=True,
    )

    prompts: Annotated[int, Field(ge=1, le=1024)] = 32
    """Number of prompts."""


class RingProblem(_Problem):
    """Points in the plane. The policy is a small network with two hidden layers."""

    kind: Literal["ring"] = "ring"
    """`ring` for points, `grid` for pictures."""
    modes: Annotated[int, Field(ge=2, le=64)] = 12
    """Number of modes on the circle."""
    width: Annotated[int, Field(ge=8, le=1024)] = 96
    """Width of the hidden layers."""
    pretraining_steps: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Steps of flow matching before the reinforcement."""
    pretraining_batch: Annotated[int, Field(ge=1, le=65_536)] = 512
    """Examples in a step of flow matching."""


class GridProblem(_Problem):
    """Pictures. The policy is a transformer over pixels, so that sequence parallelism has tokens to split."""

    kind: Literal["grid"]
    """`ring` for points, `grid` for pictures."""
    patterns: Annotated[int, Field(ge=2, le=64)] = 6
    """Number of patterns of waves."""
    side: Annotated[int, Field(ge=4, le=64)] = 16
    """Pixels along a side. Their number must be a multiple of each degree of sequence parallelism."""
    width: Annotated[int, Field(ge=8, le=1024)] = 32
    """Width of a token."""
    heads: Annotated[int, Field(ge=1, le=64)] = 4
    """Number of attention heads. It must divide `width`."""
    layers: Annotated[int, Field(ge=1, le=32)] = 2
    """Number of transformer blocks."""
    pretraining_steps: Annotated[int, Field(ge=1, le=100_000)] = 600
    """Steps of flow matching before the reinforcement."""
    pretraining_batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Examples in a step of flow matching."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads, {self.heads}")
        return self


Problem = Annotated[RingProblem | GridProblem, Field(discriminator="kind")]


class Staleness(Model):
    """Bounds of the age of the weights, in versions behind those that are trained."""

    explore: Annotated[int, Field(ge=0, le=1)] = 1
    """1: spot nodes explore the seeds of the next iteration while this one is trained. 0: exploring waits for
    the weights that will be trained, and everything else waits for the exploring.
    """
    rollout: Annotated[int, Field(ge=0, le=8)] = 0
    """Age up to which a sample may be trained on. `trainOn: explored` needs at least `explore`."""


class Canary(Model):
    """The check that stale weights still rank seeds as the trained weights do."""

    seeds: Annotated[int, Field(ge=0, le=64)] = 8
    """Explored seeds that are sampled again with the trained weights in each iteration; 0 for no check. Each
    prompt that is drawn has four of them, because only the ranks within a prompt matter.
    """
    min_spearman: Annotated[float, Field(ge=-1, le=1)] = 0.7
    """Mean rank correlation of the prompts below which the next iteration explores with fresh weights."""


class Cluster(Model):
    """The simulated cluster. All times are virtual; the gradient steps are real."""

    on_demand: Annotated[int, Field(ge=1, le=64)] = 4
    """On-demand accelerators. They train, and sample while nothing trains."""
    spot: Annotated[int, Field(ge=0, le=64)] = 8
    """Most spot nodes at a time, with one accelerator each. 0 for none."""
    trace: Literal["model", "steady", "g4dn-us-east-1c", "p2-us-east-1"] = "model"
    """`model`: the nodes of a zone come and go together, and also alone, with the times below. `steady`: all
    nodes stay. Other names: a recorded trace, from a random moment on.
    """
    hours: Hours = 168.0
    """Length of the model's trace. After its end no node comes or goes."""
    zones: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of zones. The nodes are spread evenly over them."""
    zone_up_hours: Hours = 3.0
    """Mean time for which a zone has capacity."""
    zone_down_hours: Hours = 0.75
    """Mean time for which it has none."""
    node_up_hours: Hours = 2.5
    """Mean time until a node alone is lost."""
    node_down_hours: Hours = 0.4
    """Mean time until a lost node is replaced."""
    notice_seconds: Seconds = 30.0
    """Time between the notice and the end of a node."""
    unnoticed: Share = 0.2
    """Share of the losses without notice."""
    boot_seconds: Seconds = 60.0
    """Time from the start of a node until its worker runs."""
    pull_seconds: Seconds = 2.0
    """Time in which a group copies weights over the network."""
    regroup_seconds: Seconds = 1.0
    """Time in which nodes whose workers run form another group."""
    cold_regroup_seconds: Seconds = 120.0
    """The same time if the workers start anew."""
    sample_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Time of one accelerator for one sample."""
    reward_seconds: Seconds = 0.1
    """Time of one accelerator for the reward of one sample."""
    train_seconds: Annotated[float, Field(gt=0, le=3600)] = 6.0
    """Time of one accelerator to train on one sample."""
    split_efficiency: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Efficiency that each doubling of the sequence-parallel degree keeps."""
    on_demand_price: Price = 1.0
    """Price of an on-demand accelerator per hour."""
    spot_price: Price = 0.27
    """Price of a spot node per hour."""


class Systems(Model):
    """Mechanisms of the simulated workers. Comparisons switch them off one by one."""

    elastic: bool = True
    """Groups change their degree of sequence parallelism with the work. Without, all groups are pairs."""
    warm: bool = True
    """Workers stay when a group changes, and weights that a node has are not copied again."""
    pull: bool = True
    """Workers pull one lease after another. Without, the rollouts are dealt out in equal shares."""
    commits: bool = True
    """A step that has ended is never computed again. Without, a lost request starts anew."""
    foresight: bool = False
    """The workers know the end of each node from its start. No real system does: it is a bound."""


class Algorithm(Model):
    """The learning: problem, policy and the settings of the reinforcement."""

    problem: Problem = RingProblem()
    """The samples, and their reward."""
    sampler_steps: Annotated[int, Field(ge=1, le=1000)] = 8
    """Denoising steps of a sample."""
    sigma: Annotated[float, Field(gt=0, le=10)] = 0.35
    """Noise of the steps."""
    prompts_per_iteration: Annotated[int, Field(ge=1, le=1024)] = 8
    """Prompts in an iteration."""
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    """Samples of a prompt that are trained on."""
    max_seeds: Annotated[int, Field(ge=1, le=4096)] = 48
    """Most seeds of a prompt that are explored."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 6e-3
    """Learning rate of Adam."""
    kl: Annotated[float, Field(ge=0, le=100)] = 0.01
    """Weight of the divergence from the base policy."""
    train_on: TrainOn = "fresh"
    """`fresh`: sample the chosen seeds again with the trained weights. `explored`: train on the explored
    samples, with a ratio for each step.
    """
    selection: Selection = "fullSeed"
    """`fullSeed`: a seed fixes all noise of a sample, and the gradient is biased by design, because the
    selection sees the noise of the steps. `initialLatent`: a seed fixes the start only. `none`: no exploring.
    """
    choose: Choose = "maxVariance"
    """`maxVariance`: of a prompt's explored seeds, those whose rewards differ most are trained on. `first`:
    those that were explored first, whatever their rewards. It is a control, and gains nothing.
    """
    planner: PlannerName = "uniform"
    """`uniform`: all prompts get the same number of seeds. `gain`: prompts that lack good or bad samples get
    more.
    """
    staleness: Staleness = Staleness()
    canary: Canary = Canary()
    sequence_parallel: Annotated[list[Degree], Field(min_length=1)] = ALL_DEGREES
    """Degrees of sequence parallelism that groups of spot nodes may have."""
    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    """Time after which another worker gets the work of a silent one."""
    phase_seconds: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """Longest time of the rollouts of an iteration. The training goes on without those that are missing."""
    evaluation_seeds: Annotated[int, Field(ge=1, le=1024)] = 8
    """Held-out samples of each prompt in an evaluation. No sample is ever trained on."""
    target: Share = 0.5
    """Mean held-out reward at which the time and the cost to target are taken."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.prompts_per_iteration > self.problem.prompts:
            raise ValueError(f"promptsPerIteration: at most problem.prompts, {self.problem.prompts}")
        if self.selection != "none" and self.max_seeds < self.group_size:
            raise ValueError(f"maxSeeds: at least groupSize, {self.group_size}, to choose from")
        if self.train_on == "explored":
            self._check_explored()
        if isinstance(self.problem, GridProblem):
            self._check_degrees(self.problem.side**2)
        return self

    def _check_explored(self) -> None:
        if self.selection != "fullSeed":
            raise ValueError("trainOn: explored needs selection: fullSeed, as nothing is sampled again")
        if self.staleness.rollout < self.staleness.explore:
            raise ValueError(
                f"staleness.rollout: at least staleness.explore, {self.staleness.explore}, "
                "with trainOn: explored; otherwise every explored sample is too old and nothing is trained"
            )

    def _check_degrees(self, tokens: int) -> None:
        if wrong := [degree for degree in self.sequence_parallel if tokens % degree]:
            raise ValueError(f"sequenceParallel: {wrong[0]} does not divide the {tokens} tokens of a picture")


class Live(Model):
    """Settings of real workers, with `workers: ray`."""

    slots: Annotated[int, Field(ge=1, le=16)] = 1
    """Workers in each spot pod. They share weights, and form groups of sequence parallelism."""
    capacity: Annotated[int, Field(ge=1, le=256)] = 8
    """Requests that a worker computes at a time."""
    store_mebibytes: Annotated[int, Field(ge=80, le=65_536)] = 96
    """Shared memory of a pod for weights. The head needs as much."""
    pace: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Real seconds for each second that `cluster` gives for a sample and for training; 0 for as fast as
    possible. It makes the small problems last as long as large ones.
    """


class Params(Algorithm):
    """Reinforcement learning of a flow policy, with spot nodes that explore seeds while it trains."""

    workers: Literal["simulated", "ray"] = "simulated"
    """`simulated`: spot nodes on a virtual clock, in the trainer's process. `ray`: actors of Ray in the pods
    of the job's Independent roles.
    """
    live: Live = Live()
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 150
    """Number of iterations."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Random seed of prompts, samples and the simulated cluster."""
    cluster: Cluster = Cluster()
    systems: Systems = Systems()


if __name__ == "__main__":
    print(json.dumps(Params.model_json_schema(), indent=2))
