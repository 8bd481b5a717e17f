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
  run gamma $method gamma --option shape=2 $grid
done
run multinomial collapsed multinomial --categories 3 $grid
run normal collapsed normal --records 100,1000 --epsilon 0.1,1
run log-normal collapsed log-normal --records 100,1000 --epsilon 0.1,1
# few counts: the exact law of the sum
run poisson_few exact poisson --records 10 --epsilon 0.1,1,10
run geometric_few exact geometric --records 10 --epsilon 0.1,1,10
