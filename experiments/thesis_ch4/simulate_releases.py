"""Writes the simulated releases of Figure B.1: python experiments/thesis_ch4/simulate_releases.py

Parameters from the prior, 1,000 records given them, Laplace noise for epsilon = .1; no real table is involved.
"""

from pathlib import Path

import dpjax
from dpjax.calibration.study_design import study_design

EPSILON, RECORDS, SEED = 0.1, 1000, 4
PRIORS = {"binomial": {"alpha": 10, "beta": 10}, "exponential": {"shape": 10, "rate": 10}}
RULES = {"exponential": "redact"}

for kind, prior in PRIORS.items():
    design = study_design(kind, prior=prior, rule=RULES.get(kind))
    study = design.study([(RECORDS, EPSILON)], trials=1, seed=SEED)
    release = dpjax.Release(
        statistic=design.statistic,
        records=RECORDS,
        statistics=dict(zip(design.statistic.names, study.problems.z[0].tolist(), strict=True)),
        mechanism=design.mechanism,
        noise_scale=float(study.problems.scale[0, 0]),
        privacy=dpjax.Privacy(EPSILON, 0.0, "replace-one", "l1", design.sensitivity),
        simulated=True,
    )
    path = Path(__file__).parent / f"{kind}_release.json"
    release.save(path, force=True)
    names = design.model.parameter_names
    print(path.name, "truth:", ", ".join(f"{n} = {v:.4f}" for n, v in zip(names, study.truth[0], strict=True)))
