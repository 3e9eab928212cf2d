"""The programs of `jit_scripts.py`, for either framework: `scripted_side` is PyTorch or tangrad."""

import scripted_side as torch


def scalar_loop(n: int) -> int:
    """Count with a branch in the loop."""
    total = 0
    for i in range(n):
        if i % 3 == 0:
            total += i * 2
        else:
            total -= i // 3
    return total


def nms(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> list[int]:
    """Keep the best boxes, those that overlap no better one: on lists of numbers."""
    xs: list[list[float]] = boxes.tolist()
    order: list[int] = scores.argsort(descending=True).tolist()
    n = len(order)
    dead = [False] * n
    kept: list[int] = []
    for a in range(n):
        i = order[a]
        if dead[i]:
            continue
        kept.append(i)
        one = xs[i]
        area = (one[2] - one[0]) * (one[3] - one[1])
        for b in range(a + 1, n):
            j = order[b]
            if dead[j]:
                continue
            other = xs[j]
            w = min(one[2], other[2]) - max(one[0], other[0])
            h = min(one[3], other[3]) - max(one[1], other[1])
            if w > 0.0 and h > 0.0:
                both = w * h
                rest = (other[2] - other[0]) * (other[3] - other[1])
                if both / (area + rest - both) > limit:
                    dead[j] = True
    return kept


def nms_tensor(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> list[int]:
    """Keep the best boxes: an op for each question."""
    order = scores.argsort(descending=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while order.numel() > 0:
        i = order[0]
        kept.append(int(i))
        order = order[1:]
        rest = boxes[order]
        low = torch.max(boxes[i, :2], rest[:, :2])
        high = torch.min(boxes[i, 2:], rest[:, 2:])
        size = (high - low).clamp(min=0.0)
        both = size[:, 0] * size[:, 1]
        iou = both / (area[i] + area[order] - both)
        order = order[iou <= limit]
    return kept


def lstm(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    w: torch.Tensor,
    u: torch.Tensor,
    b: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Walk an LSTM cell over the steps of a batch."""
    for t in range(x.size(0)):
        gates = torch.mm(x[t], w) + torch.mm(h, u) + b
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def beam(scores: torch.Tensor, width: int) -> tuple[list[int], float]:
    """Search for the best sequence, keeping some at a time."""
    table: list[list[float]] = scores.tolist()
    beams: list[list[int]] = [[0]]
    sums: list[float] = [0.0]
    for step in range(len(table)):
        row = table[step]
        values: list[float] = []
        froms: list[int] = []
        tokens: list[int] = []
        for k in range(len(beams)):
            for v in range(len(row)):
                values.append(sums[k] + row[v] - 0.01 * float(beams[k][-1] == v))
                froms.append(k)
                tokens.append(v)
        new_beams: list[list[int]] = []
        new_sums: list[float] = []
        for _ in range(min(width, len(values))):
            best = 0
            for p in range(len(values)):
                if values[p] > values[best]:
                    best = p
            new_beams.append(beams[froms[best]] + [tokens[best]])
            new_sums.append(values[best])
            values[best] = -1e30
        beams = new_beams
        sums = new_sums
    return beams[0], sums[0]


def candidates(board: list[list[int]], r: int, c: int) -> list[int]:
    """Return the digits that a cell may have."""
    used = {0: True}
    for k in range(9):
        used[board[r][k]] = True
        used[board[k][c]] = True
    br = r // 3 * 3
    bc = c // 3 * 3
    for i in range(br, br + 3):
        for j in range(bc, bc + 3):
            used[board[i][j]] = True
    return rest(used)


def rest(used: dict[int, bool]) -> list[int]:
    """Return the digits that are not used."""
    out: list[int] = []
    for v in range(1, 10):
        if v not in used:
            out.append(v)
    return out


def sudoku(text: str) -> tuple[int, list[list[int]]]:
    """Fill in a sudoku by trying, for some thousand steps."""
    board: list[list[int]] = []
    for r in range(9):
        row: list[int] = []
        for c in range(9):
            row.append(int(text[r * 9 + c]))
        board.append(row)
    places: list[tuple[int, int]] = []
    stack: list[list[int]] = []
    steps = 0
    forward = True
    while steps < 4000:
        steps += 1
        if forward:
            best = 10
            br = -1
            bc = -1
            choice: list[int] = []
            for r in range(9):
                for c in range(9):
                    if board[r][c] == 0 and best > 1:
                        found = candidates(board, r, c)
                        if len(found) < best:
                            best = len(found)
                            br = r
                            bc = c
                            choice = found
            if br < 0:
                break
            places.append((br, bc))
            stack.append(choice)
        if len(stack) == 0:
            break
        r, c = places[-1]
        if len(stack[-1]) > 0:
            board[r][c] = stack[-1].pop()
            forward = True
        else:
            board[r][c] = 0
            places.pop()
            stack.pop()
            forward = False
    return steps, board
