"""LSTM, GRU and RNN by the equations of their specification, in numpy: every attribute and input."""
import numpy as np

FUNCTIONS = {
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * (np.exp(np.minimum(x, 0)) - 1), x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
TAKES = {"affine": 2, "scaledtanh": 2, "hardsigmoid": 2, "leakyrelu": 1, "thresholdedrelu": 1, "elu": 1}
STANDARD = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}


def functions(op, dirs, attr):
    alpha, beta = list(attr.get("activation_alpha", [])), list(attr.get("activation_beta", []))
    out = []
    for name in attr.get("activations", STANDARD[op] * dirs):
        name = name.lower()
        a = alpha.pop(0) if TAKES.get(name, 0) > 0 else 0
        b = beta.pop(0) if TAKES.get(name, 0) > 1 else 0
        clip = attr.get("clip", np.inf)
        out.append(lambda x, n=name, a=a, b=b: FUNCTIONS[n](np.clip(x, -clip, clip), a, b))
    n = len(STANDARD[op])
    return [out[i * n:(i + 1) * n] for i in range(dirs)]


def step(op, f, x, h, c, w, r, wb, rb, p, attr):
    size = h.shape[-1]
    if op == "RNN":
        return f[0](x @ w.T + h @ r.T + wb + rb), c
    a = x @ w.T + wb
    if op == "GRU":
        z = f[0](a[:, :size] + h @ r[:size].T + rb[:size])
        reset = f[0](a[:, size:2 * size] + h @ r[size:2 * size].T + rb[size:2 * size])
        if attr.get("linear_before_reset"):
            n = f[1](a[:, 2 * size:] + reset * (h @ r[2 * size:].T + rb[2 * size:]))
        else:
            n = f[1](a[:, 2 * size:] + (reset * h) @ r[2 * size:].T + rb[2 * size:])
        return (1 - z) * n + z * h, c
    i, o, forget, g = np.split(a + h @ r.T + rb, 4, 1)
    pi, po, pf = np.split(p, 3)
    i = f[0](i + pi * c)
    forget = 1 - i if attr.get("input_forget") else f[0](forget + pf * c)
    c = forget * c + i * f[1](g)
    return f[0](o + po * c) * f[2](c), c


def recurrent(op, x, w, r, b=None, lens=None, h0=None, c0=None, p=None, **attr):
    """[Y, Y_h] and for LSTM Y_c."""
    first = attr.get("layout", 0)
    if first:
        x = x.transpose(1, 0, 2)
        h0, c0 = [None if s is None else s.transpose(1, 0, 2) for s in (h0, c0)]
    steps, n = x.shape[:2]
    dirs, size = w.shape[0], r.shape[2]
    gates = w.shape[1]
    lens = np.full(n, steps) if lens is None else lens
    y = np.zeros((steps, dirs, n, size))
    last_h, last_c = np.zeros((dirs, n, size)), np.zeros((dirs, n, size))
    for d in range(dirs):
        f = functions(op, dirs, attr)[d]
        h = np.zeros((n, size)) if h0 is None else h0[d].astype(float)
        c = np.zeros((n, size)) if c0 is None else c0[d].astype(float)
        wb, rb = (np.zeros(gates), np.zeros(gates)) if b is None else np.split(b[d], 2)
        peep = np.zeros(3 * size) if p is None else p[d]
        back = d == 1 or attr.get("direction") == "reverse"
        for t in range(steps)[::-1 if back else 1]:
            new_h, new_c = step(op, f, x[t], h, c, w[d], r[d], wb, rb, peep, attr)
            on = (t < lens)[:, None]
            h, c = np.where(on, new_h, h), np.where(on, new_c, c)
            y[t, d] = np.where(on, h, 0)
        last_h[d], last_c[d] = h, c
    if first:
        y, last_h, last_c = y.transpose(2, 0, 1, 3), last_h.transpose(1, 0, 2), last_c.transpose(1, 0, 2)
    return [y, last_h] + ([last_c] if op == "LSTM" else [])


def cases(data):
    """(name, operator, inputs, attributes); data(*shape) makes random numbers."""
    def make(op, steps=4, n=3, inputs=5, size=2, dirs=1, layout=0, lens=None, state=True, peep=False, **attr):
        g = {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * size
        x = data(n, steps, inputs) if layout else data(steps, n, inputs)
        h = data(n, dirs, size) if layout else data(dirs, n, size)
        c = data(n, dirs, size) if layout else data(dirs, n, size)
        given = [x, data(dirs, g, inputs), data(dirs, g, size), data(dirs, 2 * g),
                 None if lens is None else np.array(lens, np.int32), h if state else None]
        if op == "LSTM":
            given += [c if state else None, data(dirs, 3 * size) if peep else None]
        while given[-1] is None:
            given.pop()
        if dirs == 2:
            attr["direction"] = "bidirectional"
        if layout:
            attr["layout"] = 1
        return op, given, dict(attr, hidden_size=size)
    return [
        ("lstm_both", *make("LSTM", dirs=2)),
        ("lstm_peepholes", *make("LSTM", peep=True, dirs=2, state=False)),
        ("lstm_lengths", *make("LSTM", lens=[4, 1, 2], dirs=2)),
        ("lstm_lengths_zero", *make("LSTM", lens=[0, 3, 2], state=False, peep=True)),
        ("lstm_coupled_clip", *make("LSTM", input_forget=1, clip=0.5, direction="reverse")),
        ("lstm_layout", *make("LSTM", layout=1, dirs=2)),
        ("lstm_functions", *make("LSTM", activations=["HardSigmoid", "Softsign", "ScaledTanh"],
                                 activation_alpha=[0.3, 1.5], activation_beta=[0.4, 0.7])),
        ("gru_both", *make("GRU", dirs=2)),
        ("gru_after", *make("GRU", dirs=2, linear_before_reset=1, lens=[2, 4, 3])),
        ("gru_after_zero", *make("GRU", linear_before_reset=1, state=False, direction="reverse")),
        ("gru_layout", *make("GRU", layout=1, lens=[1, 4, 3])),
        ("gru_functions", *make("GRU", activations=["Affine", "Elu"], activation_alpha=[0.2, 1.2],
                                activation_beta=[0.3])),
        ("rnn_both", *make("RNN", dirs=2, activations=["LeakyRelu", "Softplus"], activation_alpha=[0.1])),
        ("rnn_one_step", *make("RNN", steps=1, n=1, inputs=1, size=1)),
        ("rnn_long", *make("RNN", steps=11, lens=[11, 6, 1], activations=["ThresholdedRelu"],
                           activation_alpha=[0.5], state=False)),
    ]
