"""Filter, warp, match and augment pictures by kornia."""

import kornia as K
import torch
from outcome import tell

torch.manual_seed(0)
x = torch.rand(2, 3, 24, 24, requires_grad=True)
blurred = K.filters.gaussian_blur2d(x, (5, 5), (1.2, 1.2))
blurred.sum().backward()
tell("blurred", blurred)
tell("grad", x.grad)
x = x.detach()
tell("sobel", K.filters.sobel(x))
tell("canny", K.filters.canny(x)[0])
tell("hsv", K.color.rgb_to_hsv(x))
tell("lab", K.color.rgb_to_lab(x))
turned = K.geometry.transform.rotate(x, torch.tensor([30.0, -10.0]))
tell("turned", turned)
matrix = K.geometry.transform.get_perspective_transform(
    torch.tensor([[[0.0, 0.0], [23.0, 0.0], [23.0, 23.0], [0.0, 23.0]]]),
    torch.tensor([[[2.0, 1.0], [20.0, 0.0], [22.0, 21.0], [1.0, 23.0]]]),
)
tell("perspective", matrix)
tell("warped", K.geometry.transform.warp_perspective(x[:1], matrix, (24, 24)))
tell("ssim", K.losses.ssim_loss(x[:1], x[1:], 5))
tell("harris", K.feature.harris_response(K.color.rgb_to_grayscale(x)))
angle = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.Adam([angle], lr=1.0)
losses = []
target = K.geometry.transform.rotate(blurred.detach()[:1], torch.tensor([12.0]))
for _ in range(20):
    loss = (K.geometry.transform.rotate(blurred.detach()[:1], angle) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item() * 100)
tell("losses", losses)
tell(
    "quaternion",
    K.geometry.conversions.quaternion_to_rotation_matrix(torch.tensor([0.5, 0.5, 0.5, 0.5])),
)
