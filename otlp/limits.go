package otlp

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Without limits, a request of a kilobyte could become gigabytes: a nested value repeats the name of its attribute,
// and each span repeats its resource.
const (
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
	dataPoints         = 1
	exemplarAttributes = 7
)

// checkDepth rejects a document whose values nest too deep, before it reaches a decoder that recurses into each
// level.
func checkDepth(data []byte, encoding Encoding, protobuf func(data []byte) bool) error {
	deep := jsonTooDeep
	if encoding == Protobuf {
		deep = protobuf
	}
	if deep(data) {
		return fmt.Errorf("attribute values are nested deeper than %d levels", MaxDepth)
	}
	return nil
}

// jsonTooDeep counts brackets. A level of values takes at most three, and the document around them fewer than 16. It
// leaves a document that is not JSON to the decoder.
func jsonTooDeep(data []byte) bool {
	depth, text := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > 3*MaxDepth+16 {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// fields maps the fields of a message that hold messages to the functions that check these.
type fields map[protowire.Number]func(message []byte) (tooDeep bool)

// keyValue checks an attribute.
func keyValue(message []byte) bool {
	return fields{keyValueValue: func(v []byte) bool { return valueTooDeep(v, MaxDepth) }}.in(message)
}

func protobufTooDeep(request []byte) bool {
	event := fields{eventAttributes: keyValue}.in
	link := fields{linkAttributes: keyValue}.in
	span := fields{spanAttributes: keyValue, spanEvents: event, spanLinks: link}.in
	return scopedTooDeep(request, span)
}

func metricsTooDeep(request []byte) bool {
	exemplar := fields{exemplarAttributes: keyValue}.in
	// The data points of each type of metric have their own field numbers for attributes and exemplars.
	points := func(attributes, exemplars protowire.Number) func([]byte) bool {
		point := fields{attributes: keyValue}
		if exemplars != 0 {
			point[exemplars] = exemplar
		}
		return fields{dataPoints: point.in}.in
	}
	number := points(7, 5)
	metric := fields{
		metricGauge: number, metricSum: number, metricHistogram: points(9, 8), metricExponential: points(1, 11), metricSummary: points(7, 0),
		metricMetadata: keyValue,
	}.in
	return scopedTooDeep(request, metric)
}

// scopedTooDeep checks the resources, scopes and items of a request. Their field numbers are the same for all
// signals.
func scopedTooDeep(request []byte, item func([]byte) bool) bool {
	scope := fields{scopeAttributes: keyValue}.in
	scoped := fields{scopeScope: scope, scopeSpans: item}.in
	resource := fields{resourceAttributes: keyValue}.in
	resourced := fields{resourceResource: resource, resourceScopeSpans: scoped}.in
	return fields{requestResourceSpans: resourced}.in(request)
}

func valueTooDeep(value []byte, levels int) bool {
	if levels == 0 {
		return true
	}
	inner := func(v []byte) bool { return valueTooDeep(v, levels-1) }
	return fields{
		valueArray: fields{arrayValues: inner}.in,
		valueMap:   fields{mapValues: fields{keyValueValue: inner}.in}.in,
	}.in(value)
}

func (f fields) in(message []byte) bool {
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return false // the decoder reports what is wrong
		}
		size := protowire.ConsumeFieldValue(field, kind, message[tag:])
		if size < 0 {
			return false
		}
		if look, ok := f[field]; ok && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[tag:])
			if look(value) {
				return true
			}
		}
		message = message[tag+size:]
	}
	return false
}
