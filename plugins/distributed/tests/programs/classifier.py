"""A convolutional classifier with batch normalization and metrics over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Linear(6 * 4 * 4, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def accuracy(output, target, topk=(1, 2)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum().item() / target.size(0) for k in topk]


def data(size, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (size,), generator=generator)
    images = torch.rand(size, 1, 8, 8, generator=generator)
    images += (labels.float().view(-1, 1, 1, 1) / classes) * torch.eye(8)
    return TensorDataset(images, labels)


def main():
    dist.init_process_group("gloo", init_method="env://")
    torch.manual_seed(3)
    model = DistributedDataParallel(Net(4), find_unused_parameters=False)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    train_set, val_set = data(96, 4, 1), data(40, 4, 2)
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    loader = DataLoader(train_set, batch_size=12, sampler=sampler)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    val_loader = DataLoader(val_set, batch_size=10, sampler=val_sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        losses = AverageMeter("loss")
        for images, target in loader:
            loss = criterion(model(images), target)
            losses.update(loss.item(), images.size(0))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        scheduler.step()
        losses.all_reduce()
        model.eval()
        top1, top2 = AverageMeter("top1"), AverageMeter("top2")
        with torch.no_grad():
            for images, target in val_loader:
                one, two = accuracy(model(images), target)
                top1.update(one, images.size(0))
                top2.update(two, images.size(0))
        top1.all_reduce()
        top2.all_reduce()
        if dist.get_rank() == 0:
            print(f"result {epoch} {losses.avg:.6f} {top1.avg:.6f} {top2.avg:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
