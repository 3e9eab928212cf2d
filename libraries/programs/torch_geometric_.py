"""Learn on graphs with torch_geometric: nodes, whole graphs in batches, several kinds of nodes."""

import torch
from outcome import place, tell
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    HeteroConv,
    SAGEConv,
    TransformerConv,
    global_mean_pool,
)
from torch_geometric.transforms import AddSelfLoops, NormalizeFeatures, RandomNodeSplit
from torch_geometric.utils import degree, k_hop_subgraph, softmax, to_dense_adj, to_undirected

torch.manual_seed(0)


def train(name, parameters, loss_of):
    """Train by Adam and tell the loss of every step."""
    optimizer = torch.optim.Adam(parameters, 1e-2)
    losses = []
    for _ in range(20):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{name}.losses", losses)


def graph(nodes, kind):
    """Return a ring with chords that skip `kind` nodes."""
    ring = torch.arange(nodes)
    edges = torch.stack([ring.repeat(2), torch.cat([ring + 1, ring + 1 + kind]) % nodes])
    return Data(torch.rand(nodes, 5), to_undirected(edges), y=torch.tensor([kind - 1]))


citations = NormalizeFeatures()(graph(30, 2))
citations.y = torch.arange(30) // 10
citations = RandomNodeSplit(num_val=5, num_test=5)(citations)
tell("split", citations.train_mask.long())
x, edges = citations.x, citations.edge_index


class Network(nn.Module):
    """Two convolutions of a kind."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


networks = {
    "gcn": Network(GCNConv(5, 8), GCNConv(8, 3)),
    "gat": Network(GATConv(5, 4, heads=2), GATConv(8, 3, heads=1, concat=False)),
    "sage": Network(SAGEConv(5, 8, aggr="max"), SAGEConv(8, 3)),
    "transformer": Network(TransformerConv(5, 4, heads=2), TransformerConv(8, 3)),
}
chosen = citations.train_mask
for name, network in networks.items():
    train(
        name,
        network.parameters(),
        lambda network=network: nn.functional.cross_entropy(
            network(x, edges)[chosen], citations.y[chosen]
        ),
    )
    tell(f"{name}.logits", network(x, edges))
torch.save(networks["gat"].state_dict(), place("gat.pt"))
networks["gat"].load_state_dict(torch.load(place("gat.pt")))
tell("gat.again", networks["gat"](x, edges))

batches = DataLoader([graph(6 + i % 3, 1 + i % 2) for i in range(8)], batch_size=4, shuffle=True)
layer = GINConv(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True)
head = nn.Linear(8, 2)


def loss_of_batches():
    """Return the loss over all graphs."""
    losses = []
    for batch in batches:
        pooled = global_mean_pool(layer(batch.x, batch.edge_index), batch.batch)
        losses.append(nn.functional.cross_entropy(head(pooled), batch.y))
    return sum(losses)


train("graphs", [*layer.parameters(), *head.parameters()], loss_of_batches)

shop = HeteroData()
shop["user"].x, shop["item"].x = torch.rand(6, 3), torch.rand(4, 2)
bought = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 3, 0, 1, 2]])
shop["user", "buys", "item"].edge_index = bought
shop["item", "of", "user"].edge_index = bought.flip(0)
kinds = HeteroConv(
    {
        ("user", "buys", "item"): SAGEConv((3, 2), 4),
        ("item", "of", "user"): GATConv((2, 3), 4, add_self_loops=False),
    }
)
train(
    "kinds",
    kinds.parameters(),
    lambda: sum(out.square().mean() for out in kinds(shop.x_dict, shop.edge_index_dict).values()),
)

tell("loops", AddSelfLoops()(citations).edge_index.shape[1])
tell("degree", degree(edges[0], 30))
tell("softmax", softmax(torch.rand(edges.shape[1]), edges[1]))
tell("dense", to_dense_adj(edges)[0].sum(1))
nodes, inner, _, _ = k_hop_subgraph([0, 3], 1, edges, relabel_nodes=True)
tell("neighbours", nodes)
tell("inner", inner)
