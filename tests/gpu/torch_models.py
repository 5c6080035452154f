#!/usr/bin/python3
"""One training step of ResNet-50 (batch 64) or GPT-2 small (batch 8, 512 tokens) in PyTorch on the GPU.

    torch_models.py resnet50|gpt2_small eager|compile|checkpoint

Prints {"step_ms": median, "peak_bytes": most that tensors took}. f32 without TF32; SGD. The networks are those of
He et al. (CVPR 2016) and Radford et al. (2019), written here so that nothing but torch is needed.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

STEPS, WARM = 10, 3


class Bottleneck(nn.Module):
    def __init__(self, inside, planes, stride):
        super().__init__()
        out = planes * 4
        self.body = nn.Sequential(
            nn.Conv2d(inside, planes, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(inplace=True),
            nn.Conv2d(planes, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if stride == 1 and inside == out else nn.Sequential(
            nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, inside = [], 64
        for planes, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
            for i in range(count):
                blocks.append(Bottleneck(inside, planes, stride if i == 0 else 1))
                inside = planes * 4
        self.blocks, self.head, self.again = nn.ModuleList(blocks), nn.Linear(2048, 1000), again

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if self.again else b(x)
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, again, width=768, heads=12, layers=12, words=50257, length=1024):
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.again = nn.LayerNorm(width), again

    def forward(self, x):
        h = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False) if self.again else b(h)
        return self.norm(h) @ self.token.weight.T


def main():
    case, kind = sys.argv[1:3]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    again = kind == "checkpoint"
    if case == "resnet50":
        model = ResNet50(again).cuda().to(memory_format=torch.channels_last)
        x = torch.rand(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(1000, (64,), device="cuda")
    else:
        model = Gpt2(again).cuda()
        x = torch.randint(50257, (8, 512), device="cuda")
        y = torch.randint(50257, (8, 512), device="cuda")
    run = torch.compile(model) if kind == "compile" else model
    opt = torch.optim.SGD(model.parameters(), lr=0.001)
    ms = []
    for i in range(WARM + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = run(x)
        loss = F.cross_entropy(out.flatten(0, -2) if out.dim() > 2 else out, y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= WARM:
            ms.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"step_ms": sorted(ms)[len(ms) // 2], "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
