"""Several corpora on real ranks: killed and resumed, and with a window jumped, they are read as without."""

import pytest

from trainer.data.prepare import Recipe, prepare

pytestmark = pytest.mark.train


@pytest.fixture
def corpora(corpus, tmp_path):
    (tmp_path / "poem").mkdir()
    for number in range(5):
        (tmp_path / "poem" / f"{number}.txt").write_text(f"a rose {number} is a rose is a rose\n" * 60)
    prepare([tmp_path / "poem"], tmp_path / "small", Recipe(vocab_size=0, validation_share=0.3))
    listed = [{"path": str(corpus), "weight": 0.75}, {"path": str(tmp_path / "small"), "weight": 0.25}]
    return {"data": {"path": "", "corpora": listed}}


def test_a_resumed_mixture_equals_an_uninterrupted_one(bench, corpora):
    whole = bench("whole", **corpora)
    told = whole.train(CIUIC_SKIP_WINDOWS="[[16, 24]]").text()
    assert "75.00 % of the samples" in told
    assert "25.00 % of the samples" in told
    assert [row["positions"][0] for row in whole.steps(1)][:4] == [0, 8, 24, 32]
    assert all(row["val_loss"] > 0 for row in whole.steps(1) if row["step"] in {4, 8})
    again = whole.train(CIUIC_SKIP_WINDOWS="[[16, 24]]", CIUIC_MAX_STEP="3")
    rows = {row["step"]: row for row in whole.steps(1)}
    assert "starting from step-000000003" in again.text()
    assert [row["step"] for row in whole.steps(2)] == [4, 5, 6, 7, 8]
    for row in whole.steps(2):
        assert row["loss"] == rows[row["step"]]["loss"]
        assert row.get("val_loss") == rows[row["step"]].get("val_loss")
