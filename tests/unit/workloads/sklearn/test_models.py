"""Tests of the engine sklearn with models of many kinds, as users train them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor, IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from convoy_workloads.engines.sklearn.engine import SklearnEngine
from convoy_workloads.engines.sklearn.params import Params
from convoy_workloads.runtime.tiers import planning, shard
from convoy_workloads.serving.protocol import Inference, ModelCard, ModelError, SelfTestFailed

X, Y = load_iris(return_X_y=True)
X, Y = X[::5], Y[::5]
TEXTS = ["good day", "bad night", "good night", "bad day"]
SIGNS = ["p", "n", "p", "n"]
FRAME = pd.DataFrame({"age": [1.0, 2.0, 3.0, None], "city": ["a", "b", "a", "c"], "text": TEXTS})
MIXED = np.array([[1.0, "a"], [2.0, "b"], [3.0, "a"], [4.0, "b"]], dtype=object)


def trained_on_a_frame() -> Any:
    columns = ColumnTransformer(
        [
            ("number", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("word", OneHotEncoder(handle_unknown="ignore"), ["city"]),
            ("text", TfidfVectorizer(), "text"),
        ]
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, SIGNS)


def trained_on_mixed_columns() -> Any:
    columns = ColumnTransformer([("number", StandardScaler(), [0]), ("word", OneHotEncoder(), [1])])
    return make_pipeline(columns, LogisticRegression()).fit(MIXED, [0, 1, 0, 1])


MODELS: dict[str, tuple[Callable[[], Any], Any]] = {
    "scaler and regression": (lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), X),
    "forest with text labels": (
        lambda: RandomForestClassifier(5, n_jobs=2).fit(X, np.array(["a", "b", "c"])[Y]),
        X,
    ),
    "boosting": (lambda: HistGradientBoostingRegressor(max_iter=3).fit(X, X[:, 0]), X),
    "support vectors": (lambda: SVC().fit(X, Y), X),
    "clusters": (lambda: KMeans(3, n_init=1).fit(X), X),
    "components": (lambda: PCA(2).fit(X), X),
    "texts": (lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, SIGNS), TEXTS),
    "sparse texts": (lambda: TfidfVectorizer().fit(TEXTS), TEXTS),
    "several numbers": (lambda: Ridge().fit(X, X[:, :2]), X),
    "several labels": (
        lambda: MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([Y, Y % 2], axis=1)),
        X,
    ),
    "outliers": (lambda: IsolationForest(n_estimators=5).fit(X), X),
    "neighbours": (lambda: KNeighborsClassifier().fit(X, Y), X),
    "process": (lambda: GaussianProcessRegressor(alpha=0.1, optimizer=None).fit(X, X[:, 0]), X),
    "search": (lambda: GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=2).fit(X, Y), X),
    "calibrated": (lambda: CalibratedClassifierCV(SVC(), ensemble=False, cv=2).fit(X, Y), X),
    "frame": (trained_on_a_frame, FRAME),
    "mixed columns": (trained_on_mixed_columns, MIXED),
    "words": (lambda: OneHotEncoder().fit(MIXED[:, 1:]), MIXED[:, 1:]),
}


def loaded(model: Any, folder: Path, **params: Any) -> tuple[SklearnEngine, ModelCard]:
    skops.io.dump(model, folder / "model.skops")
    engine = SklearnEngine(Params(**params), folder)
    return engine, engine.load(lambda: None)


def write_generation(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write tensors as the shard of a generation, as Convoy's agents store it."""
    snapshot = planning.StateSnapshot(dict(tensors))
    plan = planning.plan_save(snapshot)
    data = bytearray(plan.layout.size)
    facts = planning.facts(7, 1)
    shard.write(memoryview(data), plan.layout, snapshot.tensors(plan), snapshot.texts(plan), facts)
    (folder / "shards" / "0").mkdir(parents=True)
    (folder / "shards" / "0" / "gen-1-7").write_bytes(data)


def tensors(card: ModelCard, table: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return a table as the inputs of a model."""
    if isinstance(table, pd.DataFrame):
        return {name: table[name].to_numpy(dtype=None) for name in table.columns}
    if len(card.inputs) == 1:
        kind = object if card.inputs[0].datatype == "BYTES" else np.float64
        return {card.inputs[0].name: np.array(table, dtype=kind)}
    return {one.name: table[:, number] for number, one in enumerate(card.inputs)}


def compute(engine: SklearnEngine, *inferences: Inference) -> dict[int, Any]:
    for one in inferences:
        assert engine.admit(one)
    found = {one.sequence: one for one in engine.step()}
    for one in inferences:
        engine.cancel(one.id)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_its_own_results_also_beside_other_requests(name: str, tmp_path: Path) -> None:
    make, table = MODELS[name]
    model = make()
    engine, card = loaded(model, tmp_path)
    engine.self_test()
    whole = tensors(card, table)
    rows = len(table)
    outputs = tuple(one.name for one in card.outputs)
    first, last = ({key: one[part] for key, one in whole.items()} for part in (slice(0, 1), slice(1, None)))
    found = compute(
        engine,
        Inference(1, "m", first, outputs, 1),
        Inference(2, "m", last, outputs, rows - 1),
        Inference(3, "m", whole, outputs[:1], rows),
    )
    assert set(found[3].outputs) == {outputs[0]}
    for spec in card.outputs:
        method, _, number = spec.name.partition("_proba_")
        direct = getattr(model, f"{method}_proba" if number else method)(table)
        if number:
            direct = direct[int(number)]
        expected = direct.toarray() if hasattr(direct, "toarray") else np.asarray(direct)
        ours = np.concatenate([found[1].outputs[spec.name], found[2].outputs[spec.name]])
        assert ours.shape == expected.shape and ours.shape[1:] == spec.shape[1:]
        if spec.datatype == "BYTES":
            assert ours.tolist() == expected.astype(str).tolist()
        else:
            np.testing.assert_allclose(ours, expected.astype(float), rtol=1e-9, atol=1e-9)


def test_inputs_are_found_in_the_model(tmp_path: Path) -> None:
    _, card = loaded(trained_on_a_frame(), tmp_path)
    assert [(one.name, one.datatype, one.shape) for one in card.inputs] == [
        ("age", "FP64", (-1,)),
        ("city", "BYTES", (-1,)),
        ("text", "BYTES", (-1,)),
    ]
    _, card = loaded(trained_on_mixed_columns(), tmp_path, inputs={"x0": "INT64"})
    assert [(one.name, one.datatype) for one in card.inputs] == [("x0", "INT64"), ("x1", "BYTES")]
    with pytest.raises(ModelError, match=r"params\.inputs: the model has no input 'x2'; it has x0, x1"):
        loaded(trained_on_mixed_columns(), tmp_path, inputs={"x2": "INT64"})


def test_threads_of_the_parameters_replace_those_of_the_model(tmp_path: Path) -> None:
    search = GridSearchCV(RandomForestClassifier(2, n_jobs=-1), {"max_depth": [2]}, cv=2)
    engine, _ = loaded(search.fit(X, Y), tmp_path)
    found = engine._loaded._estimator
    assert (found.best_estimator_.n_jobs, found.estimator.n_jobs) == (1, 1)


def test_one_bad_request_leaves_those_beside_it(tmp_path: Path) -> None:
    engine, card = loaded(OneHotEncoder().fit(MIXED[:, 1:]), tmp_path)
    name = card.inputs[0].name

    def inference(number: int, word: str) -> Inference:
        return Inference(number, "m", {name: np.array([[word]], dtype=object)}, ("transform",), 1)

    found = compute(engine, inference(1, "a"), inference(2, "unknown"), inference(3, "b"))
    assert [found[number].error is None for number in (1, 2, 3)] == [True, False, True]
    error = found[2].error
    assert error.status == 400 and "Found unknown categories" in error.message
    assert found[3].outputs["transform"].tolist() == [[0.0, 1.0]]


def test_a_batch_has_a_bound_of_rows_and_a_large_request_is_alone(tmp_path: Path) -> None:
    engine, _ = loaded(KMeans(2, n_init=1).fit(X), tmp_path, max_rows=4)
    sizes = (3, 1, 1, 9)
    inferences = [
        Inference(id_, "m", {"input": X[:rows]}, ("predict",), rows) for id_, rows in enumerate(sizes)
    ]
    assert [engine.admit(one) for one in inferences] == [True, True, False, False]
    assert engine.usage().running == 2
    engine.step()
    engine.cancel(0)
    assert not engine.admit(inferences[3])
    engine.cancel(1)
    assert engine.admit(inferences[3])
    assert len(engine.step()[0].outputs["predict"]) == 9
    engine, _ = loaded(KMeans(2, n_init=1).fit(X), tmp_path, batching=False)
    assert [engine.admit(one) for one in inferences] == [True, False, False, False]


class Centred(BaseEstimator, ClassifierMixin):  # type: ignore[misc]
    """A model whose rows influence each other."""

    def fit(self, table: Any, _: Any = None) -> Centred:
        self.n_features_in_ = table.shape[1]
        return self

    def predict(self, table: Any) -> Any:
        return table.sum(axis=1) - table.mean()


CENTRED = f"{__name__}.Centred"


def test_types_that_are_not_trusted_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as found:
        loaded(Centred().fit(X), tmp_path)
    assert f"contains types that are not trusted: {CENTRED}. If you know" in str(found.value)
    assert "params.trusted" in str(found.value)


def test_a_model_whose_rows_influence_each_other_fails_the_self_test(tmp_path: Path) -> None:
    engine, _ = loaded(Centred().fit(X), tmp_path, trusted=[CENTRED])
    with pytest.raises(SelfTestFailed, match=r"the output predict .* set params\.batching to false"):
        engine.self_test()
    engine, _ = loaded(Centred().fit(X), tmp_path, trusted=[CENTRED], batching=False)
    engine.self_test()


def test_a_model_that_refuses_the_sample_gets_one_from_its_folder(tmp_path: Path) -> None:
    # The first step hides the words that the model knows.
    columns = ColumnTransformer([("word", OneHotEncoder(), [0])])
    model = make_pipeline(FunctionTransformer(), columns).fit(MIXED[:, 1:])
    with pytest.raises(ModelError, match=r"the model refuses the sample: .*sample\.json"):
        loaded(model, tmp_path, inputs={"x0": "BYTES"})
    body = '{"inputs": [{"name": "x0", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}]}'
    (tmp_path / "sample.json").write_text(body)
    engine, card = loaded(model, tmp_path, inputs={"x0": "BYTES"})
    engine.self_test()
    assert card.outputs[0].shape == (-1, 2)
    (tmp_path / "sample.json").write_text(body.replace("x0", "x9").replace("[2]", "[3]"))
    with pytest.raises(ModelError, match=r"sample\.json: inputs\.0\.data"):
        loaded(model, tmp_path, inputs={"x0": "BYTES"})


def test_an_estimator_that_is_not_fitted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not fitted"):
        loaded(LogisticRegression(), tmp_path)


def test_the_own_model_knows_iris_flowers() -> None:
    engine = SklearnEngine(Params(), None)
    card = engine.load(lambda: None)
    engine.self_test()
    row = {"input": np.array([[5.1, 3.5, 1.4, 0.2]])}
    found = compute(engine, Inference(1, "m", row, ("predict",), 1))
    assert found[1].outputs["predict"].tolist() == ["setosa"] and "spec.model is not set" in card.source


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], r"has no file \*\.skops: save it by"),
        (["a.skops", "b.skops"], r"has 2 models \(a\.skops, b\.skops\)"),
        (["model.joblib"], r"has model\.joblib, which holds a pickle"),
        (["a.skops"], r"a\.skops is no valid file of skops"),
    ],
)
def test_a_folder_without_a_usable_model_is_refused(files: list[str], words: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"nothing")
    with pytest.raises(ModelError, match=words):
        SklearnEngine(Params(), tmp_path).load(lambda: None)


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    skops.io.dump(KMeans(2, n_init=1).fit(X), data)
    (tmp_path / "model.skops").write_bytes(data.getvalue()[:-200])
    with pytest.raises(ModelError, match="is no valid file of skops"):
        SklearnEngine(Params(), tmp_path).load(lambda: None)


def test_a_checkpoint_may_hold_the_bytes_of_a_model(tmp_path: Path) -> None:
    data = np.frombuffer(skops.io.dumps(KMeans(2, n_init=1).fit(X)), dtype=np.uint8)
    write_generation(tmp_path, {"model.skops": torch.tensor(data), "model.other": torch.zeros(2)})
    card = SklearnEngine(Params(), tmp_path).load(lambda: None)
    assert card.source == f"the checkpoint in {tmp_path}" and card.facts["scikitLearn"]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"other": torch.zeros(2)}, "needs exactly one tensor skops with the bytes of a model; it has other"),
        ({"skops": torch.zeros(2)}, r"tensor skops has type torch\.float32 and shape \[2\], expected uint8"),
        ({"skops": torch.zeros(2, dtype=torch.uint8)}, "skops is no valid file of skops"),
    ],
)
def test_a_checkpoint_without_a_usable_model_is_refused(
    tensors: dict[str, torch.Tensor], words: str, tmp_path: Path
) -> None:
    write_generation(tmp_path, tensors)
    with pytest.raises(ModelError, match=words):
        SklearnEngine(Params(), tmp_path).load(lambda: None)
