"""A graph convolution network (Kipf and Welling, 2016) whose adjacency is a COO matrix."""

import torch
from torch import nn
from torch.nn import functional as F


def normalized(edges, nodes):
    """Return D^-1/2 (A + I) D^-1/2 as a sparse matrix."""
    both = torch.cat([edges, edges.flip(0), torch.arange(nodes).repeat(2, 1)], 1)
    adjacency = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), (nodes, nodes)).coalesce()
    degree = torch.sparse.sum(adjacency, 1).to_dense().pow(-0.5)
    rows, columns = adjacency.indices()
    values = adjacency.values() * degree[rows] * degree[columns]
    return torch.sparse_coo_tensor(adjacency.indices(), values, adjacency.shape)


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        steps = torch.arange(inputs * outputs, dtype=torch.float32).reshape(inputs, outputs)
        self.weight = nn.Parameter(torch.sin(steps) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, adjacency):
        return torch.spmm(adjacency, x @ self.weight) + self.bias


class Network(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.first = GraphConvolution(features, hidden)
        self.second = GraphConvolution(hidden, classes)

    def forward(self, x, adjacency):
        return self.second(F.relu(self.first(x, adjacency)), adjacency)


def main():
    nodes, groups = 60, 3
    labels = torch.arange(nodes) % groups
    pairs = [(i, (i + groups * k) % nodes) for i in range(nodes) for k in (1, 2)] + [
        (i, (i * 7 + 1) % nodes) for i in range(0, nodes, 5)
    ]
    adjacency = normalized(torch.tensor(pairs).t(), nodes)
    print(tuple(adjacency.shape), adjacency.coalesce()._nnz())
    x = torch.cos(torch.arange(nodes * 8, dtype=torch.float32)).reshape(nodes, 8)
    x[:, :groups] += F.one_hot(labels, groups).float() * 0.5
    model = Network(8, 16, groups)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    known = torch.arange(0, nodes, 2)
    for epoch in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, adjacency)[known], labels[known])
        loss.backward()
        optimizer.step()
        if epoch % 10 == 9:
            right = (model(x, adjacency).argmax(1) == labels).float().mean().item()
            print(f"{epoch} {loss.item():.4f} {right:.3f}")


main()
