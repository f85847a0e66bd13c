#!/bin/bash
# Proves with grpcurl, and no proto at hand, that a running Annulus serves: what it offers, its health, its
# facts, a small attention whose answer is known, one with synthetic inputs, a dry run, and a refusal.
#
#   deploy/smoke.sh [ADDRESS]        default 127.0.0.1:8001
#
# GRPCURL is the grpcurl to use; GRPCURL_FLAGS are its flags (unset: -plaintext; empty: none, which is TLS).
# Ends with 0 when all hold.
set -uo pipefail

case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
address=${1:-127.0.0.1:8001}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
grpcurl=${GRPCURL:-$(command -v grpcurl || echo "$here/../.venv/bin/grpcurl")}
read -ra flags <<< "${GRPCURL_FLAGS--plaintext}"
passed=0
failed=0
answer=

# ask METHOD JSON: calls; the answer, without blanks, is in $answer. One call has at most 30 s.
ask() {
  answer=$("$grpcurl" "${flags[@]}" -connect-timeout 10 -max-time 30 -d "$2" "$address" "$1" 2>&1)
  local code=$?
  answer=$(tr -d ' \n\t' <<< "$answer")
  return "$code"
}

# check NAME COMMAND...: counts the command's success.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok      $name"
    passed=$((passed + 1))
  else
    echo "FAILED  $name: ${answer:0:600}"
    failed=$((failed + 1))
  fi
}

lists_services() {
  answer=$("$grpcurl" "${flags[@]}" -connect-timeout 10 -max-time 30 "$address" list 2>&1) || return 1
  local service
  for service in annulus.v1.Attention annulus.v1.Jobs grpc.health.v1.Health; do
    grep -qx "$service" <<< "$answer" || return 1
  done
}

is_healthy() {
  ask grpc.health.v1.Health/Check '{}' && grep -q '"status":"SERVING"' <<< "$answer"
}

tells_its_facts() {
  ask annulus.v1.Attention/GetServerInfo '{}' && grep -q '"ready":true' <<< "$answer" &&
    grep -q '"capabilities":\[' <<< "$answer"
}

# Two keys of zeros weigh the same: the output is the mean of V, (2, 4), and the LSE is ln 2.
known_spec='"dtype":"DATA_TYPE_FP32","qHeads":1,"kvHeads":1,"headDim":2,"sequences":[{"qLen":1,"kvLen":2}]'
attends_typed_numbers() {
  ask annulus.v1.Attention/AttendInline "{\"spec\":{$known_spec},\"tensors\":{
      \"q\":{\"shape\":[1,1,2],\"values\":[1,-1]},
      \"k\":{\"shape\":[2,1,2],\"values\":[0,0,0,0]},
      \"v\":{\"shape\":[2,1,2],\"values\":[1,2,3,6]}}}" &&
    grep -q '"out":{[^}]*"values":\[2,4\]' <<< "$answer" &&
    grep -q '"lse":{[^}]*"values":\[0\.693147' <<< "$answer"
}

seeded_spec='"dtype":"DATA_TYPE_BF16","qHeads":4,"kvHeads":2,"headDim":64,"masks":[{"causal":true}],
  "sequences":[{"qLen":512,"kvLen":512}]'
digest_of_seed() {
  ask annulus.v1.Attention/AttendInline "{\"spec\":{$seeded_spec},\"execution\":{\"worldSize\":1},
      \"synthetic\":{\"seed\":$1}}" || return 1
  grep -oE '"out(C|_c)rc32c":[0-9]+' <<< "$answer"
}
attends_synthetic_inputs() {
  local first second other
  first=$(digest_of_seed 7) && second=$(digest_of_seed 7) && other=$(digest_of_seed 8) || {
    ask annulus.v1.Attention/AttendInline "{\"spec\":{$seeded_spec},\"synthetic\":{\"seed\":7}}"
    return 1
  }
  answer="digests $first $second $other"
  [ -n "$first" ] && [ "$first" = "$second" ] && [ "$first" != "$other" ]
}

plans_without_running() {
  ask annulus.v1.Jobs/PlanJob "{\"spec\":{$seeded_spec}}" &&
    grep -q '"shards":\[' <<< "$answer" && grep -qE '"predicted(T|_t)ime":' <<< "$answer"
}

# Three query heads cannot share two key/value heads.
refuses_a_bad_spec() {
  ask annulus.v1.Jobs/PlanJob '{"spec":{"dtype":"DATA_TYPE_FP32","qHeads":3,"kvHeads":2,"headDim":8,
      "sequences":[{"qLen":4,"kvLen":4}]}}' && return 1
  grep -q 'Code:InvalidArgument' <<< "$answer" && grep -q 'SHAPE_MISMATCH' <<< "$answer"
}

check "lists its services by reflection" lists_services
check "health says SERVING" is_healthy
check "GetServerInfo" tells_its_facts
check "AttendInline with typed numbers" attends_typed_numbers
check "AttendInline by seed, the same digest twice" attends_synthetic_inputs
check "PlanJob" plans_without_running
check "refuses a bad spec with its reason" refuses_a_bad_spec
echo "smoke: $passed of $((passed + failed)) hold at $address"
[ "$failed" = 0 ]
