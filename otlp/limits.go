package otlp

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agl-go/agl/internal/rawjson"
)

// Without limits, a request of a kilobyte could become gigabytes: a nested value repeats the name of its attribute,
// and each span repeats its resource. An empty message of two bytes takes some hundred once it is decoded.
const (
	// MaxMessages is how many messages a request may have: resources, scopes, spans, events, links, metrics, attributes
	// and their values.
	MaxMessages = 1 << 20
	// MaxDepth is how deep the values of attributes may nest.
	MaxDepth = 64
	// maxKey is the longest name of an attribute in bytes, including the names and indexes of the values around it.
	maxKey = 4 << 10
	// MaxGrowth bounds the attributes of all spans of a request, as JSON: they may have this many times the size of
	// the request, plus 8 MiB. Of a resource that spans share, only what exceeds MaxResource counts for each span.
	MaxGrowth   = 16
	MaxResource = 4 << 10

	minGrowth = 8 << 20
)

// Field numbers of the messages that contain attribute values; see also ids.go.
const (
	resourceResource   = 1
	resourceAttributes = 1
	scopeScope         = 1
	scopeAttributes    = 3
	spanAttributes     = 9
	spanEvents         = 11
	eventAttributes    = 3
	linkAttributes     = 4
	keyValueValue      = 2
	valueArray         = 5
	valueMap           = 6
	arrayValues        = 1
	mapValues          = 1
	metricGauge        = 5
	metricSum          = 7
	metricHistogram    = 9
	metricExponential  = 10
	metricSummary      = 11
	metricMetadata     = 12
	summaryQuantiles   = 6
	resourceEntities   = 3
	dataPoints         = 1
	exemplarAttributes = 7
)

// walk checks a message and those in it, of which there may be as many as are left.
type walk func(message []byte, left *int) error

var (
	errTooDeep = fmt.Errorf("attribute values are nested deeper than %d levels", MaxDepth)
	errText    = errors.New("text follows the JSON document; send each in a request of its own")
	errTooMany = fmt.Errorf("it has more than %d messages, such as spans and attributes; send several requests", MaxMessages)
)

// check rejects a document with too many messages, or whose values nest too deep, before it reaches a decoder that
// takes memory for each message and recurses into each level.
func check(data []byte, encoding Encoding, protobuf walk) error {
	if encoding == JSON {
		return checkJSON(data)
	}
	left := MaxMessages
	return protobuf(data, &left)
}

// checkJSON counts brackets, and commas: an element of a list becomes a message, whatever it is. A level of values takes at
// most three brackets, and the document around them fewer than 16. It rejects text behind the document, and leaves a document that is not JSON to the decoder.
func checkJSON(data []byte) error {
	depth, text, messages, commas := 0, false, 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > 3*MaxDepth+16 {
				return errTooDeep
			}
			messages++
		case c == '}' || c == ']':
			if depth--; depth == 0 && rawjson.SkipSpace(data, i+1) < len(data) {
				return errText // the decoder would leave it out
			}
		case c == ',':
			commas++
		}
		if max(messages, commas) > MaxMessages {
			return errTooMany
		}
	}
	return nil
}

// fields maps the fields of a message that hold messages to the functions that check these.
type fields map[protowire.Number]walk

// keyValue checks an attribute.
func keyValue(message []byte, left *int) error {
	return fields{keyValueValue: func(v []byte, left *int) error { return checkValue(v, left, MaxDepth) }}.in(message, left)
}

// leaf checks a message without others.
func leaf([]byte, *int) error { return nil }

func checkTraces(request []byte, left *int) error {
	event := fields{eventAttributes: keyValue}.in
	link := fields{linkAttributes: keyValue}.in
	span := fields{spanAttributes: keyValue, spanEvents: event, spanLinks: link}.in
	return checkScoped(request, left, span)
}

func checkMetrics(request []byte, left *int) error {
	exemplar := fields{exemplarAttributes: keyValue}.in
	// The data points of each type of metric have their own field numbers for attributes and exemplars.
	points := func(attributes, exemplars protowire.Number) walk {
		return fields{dataPoints: fields{attributes: keyValue, exemplars: exemplar}.in}.in
	}
	number := points(7, 5)
	summary := fields{dataPoints: fields{7: keyValue, summaryQuantiles: leaf}.in}.in
	metric := fields{
		metricGauge: number, metricSum: number, metricHistogram: points(9, 8), metricExponential: points(1, 11), metricSummary: summary,
		metricMetadata: keyValue,
	}.in
	return checkScoped(request, left, metric)
}

// checkScoped checks the resources, scopes and items of a request. Their field numbers are the same for all
// signals.
func checkScoped(request []byte, left *int, item walk) error {
	scope := fields{scopeAttributes: keyValue}.in
	scoped := fields{scopeScope: scope, scopeSpans: item}.in
	resource := fields{resourceAttributes: keyValue, resourceEntities: leaf}.in
	resourced := fields{resourceResource: resource, resourceScopeSpans: scoped}.in
	return fields{requestResourceSpans: resourced}.in(request, left)
}

func checkValue(value []byte, left *int, levels int) error {
	if levels == 0 {
		return errTooDeep
	}
	inner := func(v []byte, left *int) error { return checkValue(v, left, levels-1) }
	return fields{
		valueArray: fields{arrayValues: inner}.in,
		valueMap:   fields{mapValues: fields{keyValueValue: inner}.in}.in,
	}.in(value, left)
}

func (f fields) in(message []byte, left *int) error {
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil // the decoder reports what is wrong
		}
		size := protowire.ConsumeFieldValue(field, kind, message[tag:])
		if size < 0 {
			return nil
		}
		if look, ok := f[field]; ok && kind == protowire.BytesType {
			if *left--; *left < 0 {
				return errTooMany
			}
			value, _ := protowire.ConsumeBytes(message[tag:])
			if err := look(value, left); err != nil {
				return err
			}
		}
		message = message[tag+size:]
	}
	return nil
}
