"""Compute metrics of torchmetrics over batches."""

import torch
from outcome import place, tell
from torchmetrics import MeanMetric, MetricCollection, MetricTracker
from torchmetrics.classification import (
    BinaryAUROC,
    BinaryAveragePrecision,
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MultilabelF1Score,
)
from torchmetrics.functional import pairwise_cosine_similarity
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from torchmetrics.regression import MeanSquaredError, PearsonCorrCoef, R2Score, SpearmanCorrCoef
from torchmetrics.retrieval import RetrievalMAP
from torchmetrics.text import BLEUScore, Perplexity

torch.manual_seed(0)
collection = MetricCollection(
    [MulticlassAccuracy(4), MulticlassF1Score(4, average="macro")], prefix="m_"
)
matrix, calibration = MulticlassConfusionMatrix(4), MulticlassCalibrationError(4)
pairs = {
    "mse": MeanSquaredError(),
    "r2": R2Score(),
    "pearson": PearsonCorrCoef(),
    "spearman": SpearmanCorrCoef(),
}
auroc, precision, multilabel = BinaryAUROC(), BinaryAveragePrecision(), MultilabelF1Score(3)
mean, psnr, ssim, perplexity = (
    MeanMetric(),
    PeakSignalNoiseRatio(1.0),
    StructuralSimilarityIndexMeasure(data_range=1.0),
    Perplexity(),
)
retrieval = RetrievalMAP()
for _ in range(20):
    scores, y = torch.randn(16, 4).softmax(-1), torch.randint(0, 4, (16,))
    collection.update(scores, y)
    matrix.update(scores, y)
    calibration.update(scores, y)
    a = torch.randn(16)
    b = a + torch.randn(16) * 0.3
    for metric in pairs.values():
        metric.update(a, b)
    auroc.update(torch.sigmoid(a), (b > 0).long())
    precision.update(torch.sigmoid(a), (b > 0).long())
    multilabel.update(torch.rand(8, 3), torch.randint(0, 2, (8, 3)))
    mean.update(a)
    image = torch.rand(2, 3, 24, 24)
    psnr.update(image, (image + 0.05 * torch.randn(image.shape)).clamp(0, 1))
    ssim.update(image, (image + 0.05 * torch.randn(image.shape)).clamp(0, 1))
    perplexity.update(torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5)))
    retrieval.update(torch.rand(10), torch.randint(0, 2, (10,)), torch.arange(10) // 5)
for name, value in collection.compute().items():
    tell(name, value)
for name, metric in {
    **pairs,
    "matrix": matrix,
    "calibration": calibration,
    "auroc": auroc,
    "precision": precision,
    "multilabel": multilabel,
    "mean": mean,
    "psnr": psnr,
    "ssim": ssim,
    "perplexity": perplexity,
    "retrieval": retrieval,
}.items():
    tell(name, metric.compute())
tell(
    "bleu",
    BLEUScore(2)(["the cat is on the mat"], [["there is a cat on the mat", "a cat is on the mat"]]),
)
tell("cosine", pairwise_cosine_similarity(torch.randn(3, 4), torch.randn(2, 4)))
collection.persistent(True)
torch.save(collection.state_dict(), place("metrics.pt"))
again = MetricCollection(
    [MulticlassAccuracy(4), MulticlassF1Score(4, average="macro")], prefix="m_"
)
again.load_state_dict(torch.load(place("metrics.pt")))
tell("again", again.compute()["m_MulticlassAccuracy"])
tracker = MetricTracker(MulticlassAccuracy(4))
for _ in range(3):
    tracker.increment()
    tracker.update(torch.randn(9, 4), torch.randint(0, 4, (9,)))
tell("best", float(tracker.best_metric()))
