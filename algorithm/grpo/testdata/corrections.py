"""Writes corrections.json: the factors of each correction by NumPy, from the formulas, for `go test`."""
import json
import numpy as np

rng = np.random.default_rng(7)
cases = []
for tokens, spread in [(1, 0.3), (4, 0.05), (4, 1.0), (9, 0.002), (9, 0.6), (16, 0.3), (5, 2.0), (6, 1.5), (12, 2.5)]:
    b = np.log(rng.uniform(0.02, 0.98, tokens))
    p = np.minimum(b + rng.normal(0, spread, tokens), -1e-3)
    b, p = b.astype(np.float32), p.astype(np.float32)
    a = np.where(rng.random(tokens) < 0.5, -1, 1) * rng.uniform(0.2, 2, tokens)
    a = a.astype(np.float32)
    rho = np.exp(p.astype(float) - b.astype(float))
    prod, geo = rho.prod(), rho.prod() ** (1 / tokens)
    one = np.ones(tokens)
    moved = np.exp(p.astype(float)) - np.exp(b.astype(float))
    factors = {
        "token_tis": np.minimum(rho, 2),
        "sequence_tis": one * min(prod, 2),
        "sequence_mis": one * (prod if prod <= 2 else 0),
        "icepop": np.where((rho >= 0.5) & (rho <= 5), rho, 0),
        "gspo": np.where(((a > 0) & (geo > 1 + 4e-4)) | ((a < 0) & (geo < 1 - 3e-4)), 0, geo),
        "geometric": one * (0.99 <= geo <= 1.01),
        "dppo": np.where(((a > 0) & (moved > 0.2)) | ((a < 0) & (moved < -0.2)), 0, 1),
        "dual_clip": np.where((a < 0) & (rho > 3), 0, 1),
    }
    cases.append({
        "sampler": b.tolist(), "proximal": p.tolist(), "advantages": a.tolist(),
        "factors": {k: np.asarray(v, float).tolist() for k, v in factors.items()},
        "kl": float((rho - np.log(rho) - 1).mean()), "entropy": float(-p.astype(float).mean()),
        "clipped": float(((rho < 0.8) | (rho > 1.2)).mean()), "median": float(np.sort(rho)[int(np.floor(0.5 * (tokens - 1) + 0.5))]),
    })
json.dump(cases, open("corrections.json", "w"), indent=1)
