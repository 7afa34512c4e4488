package adapter

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// primaryName is the name of a reward that has one dimension.
const primaryName = "primary"

// Rewards returns the dimensions of the reward that a span carries, the primary one first, and nil when it carries
// none. A reward has one of three forms:
//
//  1. attributes agentlightning.reward.{i}.name and .value; a value may be a
//     number, a boolean, or a string that spells a number;
//  2. agentops.task.output or agentops.entity.output, JSON text of the form
//     {"type": "reward", "value": x};
//  3. the attribute reward of a span named agentlightning.annotation.
//
// A dimension that is not finite, or beyond agl.MaxReward, is left out; if it is the primary one, the whole
// reward counts as missing. A malformed reward is an error of code agl.CodeInvalid.
func Rewards(span *agl.Span) ([]agl.Reward, error) {
	rewards, err := readRewards(span.Name, parseCallAttributes(span.Attributes))
	if err != nil {
		return nil, spanError(span, err)
	}
	return rewards, nil
}

// RewardAttributes returns the names of the attributes that rewards are read from, for [agl.QuerySpansParams].
func RewardAttributes() []string {
	return []string{agl.AttrReward + "*", attrTaskOutput, attrEntityOutput, attrAnnotatedReward}
}

// PrimaryReward returns the primary dimension of the reward that a span carries,
// as [Rewards] reads it, and null when it carries none.
func PrimaryReward(span *agl.Span) (agl.Null[float64], error) {
	rewards, err := Rewards(span)
	return primary(rewards), err
}

// FinalReward returns the reward of a rollout, given its spans in their order; null when none carries a reward. The
// reward with the highest priority counts; of several with this priority, the last. Priorities are those of
// [agl.AddReward]; other rewards have 0. Rewards of single calls count only if there is no other reward: then the
// last of them does.
func FinalReward(spans []agl.Span) (agl.Null[float64], error) {
	rewards, err := FinalRewards(spans)
	return primary(rewards), err
}

// FinalRewards returns all dimensions of the [FinalReward], the primary one first, and nil when there is none.
func FinalRewards(spans []agl.Span) ([]agl.Reward, error) {
	var final, ofCall []agl.Reward
	var priority float64
	attrs := parseCallAttributes(nil)
	for i := len(spans) - 1; i >= 0; i-- {
		s := &spans[i]
		if !mayHoldReward(s.Attributes) || final != nil && priority >= 0 && !IsPosted(s) {
			continue
		}
		attrs = attrs.parseCall(s.Attributes)
		rewards, err := readRewards(s.Name, attrs)
		if err != nil {
			return nil, spanError(s, err)
		}
		if len(rewards) == 0 {
			continue
		}
		switch r, _ := posted(attrs, rewards[0].Value); {
		case !r.whole():
			if ofCall == nil {
				ofCall = rewards
			}
		case final == nil || r.priority > priority:
			final, priority = rewards, r.priority
		}
	}
	if final == nil {
		return ofCall, nil
	}
	return final, nil
}

// SpanReward returns the reward that a span contributes to the [FinalReward] of its attempt; null if it carries no
// reward, or a malformed one. Taking the spans of an attempt by sequence id and keeping each reward that
// [agl.AttemptReward.Replaces] the one before yields the FinalReward. isPosted is the result of [IsPosted].
func SpanReward(span *agl.Span) (reward agl.Null[agl.AttemptReward], isPosted bool) {
	if !mayHoldReward(span.Attributes) {
		return reward, false
	}
	var room [16]attribute
	attrs := attributes(room[:0]).parseCall(span.Attributes)
	_, isPosted = attrs.get(agl.AttrRewardPriority)
	rewards, err := readRewards(span.Name, attrs)
	if err != nil || len(rewards) == 0 {
		return reward, isPosted
	}
	reward = agl.Some(agl.AttemptReward{Value: rewards[0].Value, SequenceID: span.SequenceID})
	if r, _ := posted(attrs, rewards[0].Value); r.whole() {
		reward.V.Priority = agl.Some(r.priority)
	}
	return reward, isPosted
}

// mayHoldReward reports whether attributes have to be parsed to find a reward. Most spans have none, which a search tells: each
// form of a reward has the word, unless some of it is escaped.
func mayHoldReward(raw agl.Attributes) bool {
	return bytes.Contains(raw, []byte("reward")) || bytes.Contains(raw, []byte(`\u`))
}

func primary(rewards []agl.Reward) agl.Null[float64] {
	if len(rewards) == 0 {
		return agl.Null[float64]{}
	}
	return agl.Some(rewards[0].Value)
}

func spanError(span *agl.Span, err error) error {
	return agl.Errorf(agl.CodeInvalid, "span %q (%q) of rollout %q: %w", span.SpanID, span.Name, span.RolloutID, err)
}

func readRewards(name string, attrs attributes) ([]agl.Reward, error) {
	if rewards, found, err := dimensions(attrs); found || err != nil {
		return rewards, err
	}
	for _, key := range []string{attrTaskOutput, attrEntityOutput} {
		if value, found := agentOpsReward(attrs, key); found {
			return single(key, value)
		}
	}
	if name == agl.SpanAnnotation {
		if value, ok := attrs.get(attrAnnotatedReward); ok {
			return single(attrAnnotatedReward, value)
		}
	}
	return nil, nil
}

// dimensions reads the first form.
func dimensions(attrs attributes) (rewards []agl.Reward, found bool, err error) {
	for _, attr := range attrs {
		if rest, ok := strings.CutPrefix(attr.key, agl.AttrReward); ok && (rest == "" || rest[0] == '.') {
			found = true
			break
		}
	}
	if !found {
		return nil, false, nil
	}
	list, err := attrs.unflatten(agl.AttrReward)
	if err != nil {
		return nil, true, err
	}
	if !list.isList {
		return nil, true, agl.Errorf(agl.CodeInvalid, "attributes %s: got %s, want a list of dimensions, .0.name, .0.value, .1.name, …", agl.AttrReward, list.json())
	}
	for i, element := range list.list {
		dimension := agl.AttrReward + "." + strconv.Itoa(i)
		name, ok := element.get("name").str()
		if !ok {
			return nil, true, agl.Errorf(agl.CodeInvalid, "attribute %s.name: got %s, must be a string", dimension, element.get("name").json())
		}
		value, err := rewardValue(dimension+".value", element.get("value").json())
		if err != nil {
			return nil, true, err
		}
		if !usable(value) {
			if i == 0 {
				return nil, true, nil
			}
			continue
		}
		rewards = append(rewards, agl.Reward{Name: name, Value: value})
	}
	return rewards, true, nil
}

// agentOpsReward reads the second form. Text that is not a JSON object holds no reward.
func agentOpsReward(attrs attributes, key string) (value jsontext.Value, found bool) {
	text, ok := attrs.str(key)
	if !ok || text == "" {
		return nil, false
	}
	output := jsontext.Value(text)
	if output.Kind() != '{' || !output.IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil, false
	}
	kind, _ := rawjson.Get(output, "type")
	if name, ok := stringValue(kind); !ok || name != "reward" {
		return nil, false
	}
	value, _ = rawjson.Get(output, "value")
	return value, true
}

// single returns a reward of one dimension; null is no reward.
func single(field string, raw jsontext.Value) ([]agl.Reward, error) {
	if raw == nil || raw.Kind() == 'n' {
		return nil, nil
	}
	value, err := rewardValue(field, raw)
	if err != nil || !usable(value) {
		return nil, err
	}
	return []agl.Reward{{Name: primaryName, Value: value}}, nil
}

// rewardValue reads a number, a boolean, or a string that spells a number. It need not be finite.
func rewardValue(field string, raw jsontext.Value) (float64, error) {
	text := string(raw)
	switch raw.Kind() {
	case 't':
		return 1, nil
	case 'f':
		return 0, nil
	case '"':
		text, _ = stringValue(raw)
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil && !math.IsInf(value, 0) {
		return 0, agl.Errorf(agl.CodeInvalid, "attribute %s: got %s, must be a number", field, raw)
	}
	return value, nil
}

// usable reports whether a number can be learned from.
func usable(f float64) bool { return math.Abs(f) <= agl.MaxReward }
