#!/bin/sh
# An agent that asks a model which of three digits is the largest. agl starts it once for each task and puts the task into AGL_TASK.
# The last line that it prints is its result.
set -eu

# member prints a string member of the JSON object on standard input. It is enough for values without escapes; elsewhere, use jq.
member() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }

question=$(printf '%s\n' "$AGL_TASK" | member question)
answer=$(printf '%s\n' "$AGL_TASK" | member answer)

# The model is behind agl's proxy, which records the call with its tokens. With the seed that agl chose for this attempt, the same
# run gives the same result again.
completion=$(curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" \
	-H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \
	-d "{\"model\": \"$OPENAI_MODEL\", \"messages\": [{\"role\": \"user\", \"content\": \"$question\"}], \"max_tokens\": 4, \"seed\": ${AGL_SEED:-null}}")
reply=$(printf '%s\n' "$completion" | member content)

# The reward: 1 is right, 0 is wrong.
if [ "$reply" = "$answer" ]; then
	echo '{"reward": 1}'
else
	echo '{"reward": 0}'
fi
