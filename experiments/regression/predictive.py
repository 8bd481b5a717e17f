"""Are predictive intervals of few records calibrated? One further record per simulated release (10 records, epsilon 1,
prior and truth of Bernstein and Sheldon 2019, section 4.2), its features given beforehand or drawn from the population
of the table.

python experiments/regression/predictive.py [SEED] prints the p-value of KS and the coverage of central intervals.
"""

import json
import sys

import numpy as np
from scipy import stats

from dpjax.calibration.study_design import study_design
from dpjax.inference.run_method import run_method

LEVELS, TRIALS = (0.5, 0.8, 0.9, 0.95), 2000


def main(seed: int) -> None:
    for simulate in ("clt", "exact"):
        study = study_design("linear-regression", simulate=simulate).study([(10, 1.0)], TRIALS, seed)
        run = run_method("collapsed", study.problems, seed=seed + 1, chains=2, draws=500)
        intercept, slope, sigma2, mean, variance = np.moveaxis(
            np.asarray(run.draws, float).reshape(TRIALS, -1, 5), 2, 0
        )
        truth = study.truth.T
        rng = np.random.default_rng(seed)
        for features in ("population", "given", "population, draws weighted by the density of the features"):
            normal = rng.standard_normal(TRIALS)
            x = 0.2 * normal if features == "given" else truth[3] + np.sqrt(truth[4]) * normal
            y = truth[0] + truth[1] * x + np.sqrt(truth[2]) * rng.standard_normal(TRIALS)
            below = stats.norm.cdf((y[:, None] - intercept - slope * x[:, None]) / np.sqrt(sigma2))
            weight = (
                stats.norm.pdf(x[:, None], mean, np.sqrt(variance)) if "weighted" in features else np.ones_like(below)
            )
            u = (weight * below).sum(1) / weight.sum(1)
            coverage = {level: float((np.abs(u - 0.5) < level / 2).mean()) for level in LEVELS}
            found = {
                "sums": simulate,
                "features": features,
                "p": stats.kstest(u, "uniform").pvalue,
                "coverage": coverage,
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 77)
