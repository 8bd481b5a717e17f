#!/usr/bin/env bash
# Calibration of every family, one command each: experiments/thesis_ch4/families.sh FOLDER [COMMAND]
set -eu
out=$1
dpjax=${2:-dpjax}
mkdir -p "$out"
run() { # name, method, arguments of dpjax calibrate
  local name=$1 method=$2
  shift 2
  $dpjax calibrate "$@" --trials 10000 --draws 250 --method "$method" --json "$out/${name}_$method.json" --force | tee "$out/${name}_$method.txt"
}
grid="--records 10,100,1000,10000 --epsilon 0.1,1"
for method in exact collapsed; do
  run binomial $method binomial $grid
  run poisson $method poisson $grid
  run geometric $method geometric $grid
  run exponential $method exponential $grid
  run gamma $method gamma --option shape=2 --records 100,1000 --epsilon 0.1,1
done
run multinomial collapsed multinomial --categories 3 $grid
run normal collapsed normal --records 1000 --epsilon 0.1,1
run log-normal collapsed log-normal --records 1000 --epsilon 0.1,1
# 10 records and little noise: where the normal law of the sum is felt, and the exact one is not rejected
few="--records 10 --epsilon 1,10,100"
run binomial_few exact binomial $few
run poisson_few exact poisson $few
run geometric_few exact geometric $few
run binomial_few collapsed binomial $few
run poisson_few collapsed poisson $few
run geometric_few collapsed geometric $few
run exponential_few collapsed exponential $few
run gamma_few collapsed gamma --option shape=2 $few
