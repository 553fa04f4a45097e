"""The model that the engine loads: a file of skops, its bytes in a checkpoint, or a model of the engine."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sklearn
import skops.io
from skops.io.exceptions import UnsupportedTypeException, UntrustedTypesFoundException

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.model_folder import record, shard_files
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.whole import ShardError, Whole, open_shard

SUFFIX = ".skops"
SAMPLE = "sample.json"
TENSOR = "skops"
"""Last part of the name of the tensor that holds the bytes of a file in a checkpoint."""
PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".cloudpickle", ".dill", ".sav"})
"""Suffixes of files that usually hold pickles."""
_KERNELS = (
    "CompoundKernel ConstantKernel DotProduct ExpSineSquared Exponentiation Matern PairwiseKernel Product "
    "RBF RationalQuadratic Sum WhiteKernel"
)
_DISTANCES = (
    "BrayCurtisDistance CanberraDistance ChebyshevDistance EuclideanDistance HammingDistance "
    "ManhattanDistance MinkowskiDistance SEuclideanDistance"
)
_SPLITS = (
    "GroupKFold KFold RepeatedKFold RepeatedStratifiedKFold ShuffleSplit StratifiedKFold TimeSeriesSplit"
)
DATA_TYPES = frozenset(
    {
        "numpy.dtype",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        *(f"sklearn.gaussian_process.kernels.{name}" for name in _KERNELS.split()),
        *(f"sklearn.metrics._dist_metrics.{name}{bits}" for name in _DISTANCES.split() for bits in (32, 64)),
        *(f"sklearn.model_selection._split.{name}" for name in _SPLITS.split()),
    }
)
"""Types in scikit-learn's models that skops leaves to its users. They hold data, and call no function that a
file names.
"""
EXPORT = "save it by `skops.io.dump(model, 'model.skops')`"


@dataclass(frozen=True)
class Loaded:
    """A model and the facts about it."""

    estimator: Any
    source: str
    """Origin of the model, in one sentence."""
    facts: dict[str, object] = field(default_factory=dict)
    sample: bytes | None = None
    """Body of a request that the model accepts; None if the model's folder has none."""


def load(path: Path | None, trusted: Collection[str]) -> Loaded:
    """Return the model in the folder `path`, or a model that the engine trains if `path` is None.

    `trusted`: names of types that the file may contain in addition. Raises ModelError, with the file or the
    type, if the model cannot be used.
    """
    if path is None:
        return _own_model()
    try:
        shards = path / "shards"
        if shards.is_dir():
            return _from_checkpoint(path, shards, trusted)
        file = _find(path)
        sample = path / SAMPLE
        estimator, versions = _read(file.name, file.read_bytes(), trusted)
        return Loaded(
            estimator,
            f"the file {file.name} in {path}",
            {"trained": True, **versions},
            sample.read_bytes() if path.is_dir() and sample.exists() else None,
        )
    except (OSError, ShardError) as error:
        raise ModelError(f"the model in {path} cannot be read: {error}") from error


def _own_model() -> Loaded:
    """Train a classifier of iris flowers with data that scikit-learn contains."""
    from sklearn.datasets import load_iris  # noqa: PLC0415 - only this model needs it
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    data = load_iris()
    estimator = make_pipeline(StandardScaler(), LogisticRegression())
    estimator.fit(data.data, data.target_names[data.target])
    why = "because spec.model is not set"
    return Loaded(estimator, f"a classifier of iris flowers, trained at the start {why}", {"trained": True})


def _find(path: Path) -> Path:
    """Return the only model in a folder."""
    if path.is_file() and path.suffix == SUFFIX:
        return path
    if not path.is_dir():
        raise ModelError(f"the model's folder {path} does not exist")
    files = sorted(path.glob(f"*{SUFFIX}"))
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(one.name for one in files[:4])
        raise ModelError(
            f"{path} has {len(files)} models ({names}): give each ServingJob a folder of its own"
        )
    if pickles := sorted(one.name for one in path.rglob("*") if one.suffix in PICKLES):
        raise ModelError(
            f"{path} has {pickles[0]}, which holds a pickle. A pickle can run any code, so it is refused: "
            f"{EXPORT}"
        )
    raise ModelError(f"{path} has no file *{SUFFIX}: {EXPORT}")


def _from_checkpoint(path: Path, shards: Path, trusted: Collection[str]) -> Loaded:
    """Return the model whose bytes a generation holds as a tensor."""
    whole = Whole(open_shard(file) for file in shard_files(shards))
    names = [name for name in whole.names if name.rpartition(".")[2] == TENSOR]
    if len(names) != 1:
        found = ", ".join(whole.names[:8]) or "none"
        raise ModelError(
            f"{path} needs exactly one tensor {TENSOR} with the bytes of a model; it has {found}"
        )
    tensor = whole.tensor(names[0])
    if tensor.dim() != 1 or str(tensor.dtype) != "torch.uint8":
        shape = list(tensor.shape)
        raise ModelError(
            f"tensor {names[0]} has type {tensor.dtype} and shape {shape}, expected uint8 and [bytes]"
        )
    estimator, versions = _read(names[0], tensor.numpy().tobytes(), trusted)
    return Loaded(estimator, f"the checkpoint in {path}", {"trained": True, **record(path), **versions})


def _read(name: str, data: bytes, trusted: Collection[str]) -> tuple[Any, dict[str, object]]:
    """Return the model in the bytes of a file, and the versions of the libraries that made it."""
    try:
        found = skops.io.get_untrusted_types(data=data)
        unknown = sorted(one for one in found if one not in DATA_TYPES and one not in trusted)
        if unknown:
            raise ModelError(
                f"{name} contains types that are not trusted: {', '.join(unknown)}. If you know who made the "
                "file and what the types do, list them in params.trusted of the engine"
            )
        with warnings.catch_warnings():
            # scikit-learn warns of each estimator of another version. `_versions` reports them once.
            warnings.simplefilter("ignore")
            return skops.io.loads(data, trusted=found), _versions(name, data)
    except ImportError as error:
        raise ModelError(f"{name} needs {error.name}, which the image lacks: add it to the image") from error
    except (UnsupportedTypeException, UntrustedTypesFoundException) as error:
        raise ModelError(f"{name}: {error}") from error
    except ModelError:
        raise
    except Exception as error:  # A damaged file may raise any error.
        why = f"{type(error).__name__}: {error}"
        raise ModelError(f"{name} is no valid file of skops, or not of this version: {why}") from error


def _versions(name: str, data: bytes) -> dict[str, object]:
    """Return the versions of the libraries that made a file."""
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        schema = json.loads(opened.read("schema.json"))
    found: dict[str, object] = {"skops": schema.get("_skops_version")}
    state = schema.get("content")
    version = state.get("content", {}).get("_sklearn_version") if isinstance(state, dict) else None
    if isinstance(version, dict) and isinstance(version.get("content"), str):
        found["scikitLearn"] = version["content"].strip('"')
        if found["scikitLearn"] != sklearn.__version__:
            log_line(
                f"{name} was made by scikit-learn {found['scikitLearn']}, and this is {sklearn.__version__}: "
                "results may differ"
            )
    return found
