package otlp

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// A request of a kilobyte could otherwise become gigabytes: a nested value repeats the
// name of the attribute that it is in, and each span repeats its resource.
const (
	// MaxDepth is how deep the values of attributes may nest.
	MaxDepth = 64
	// MaxKey is the length in bytes of the longest name that an attribute may get,
	// with the names and indexes of the values that it is nested in.
	MaxKey = 4 << 10
	// MaxGrowth bounds the attributes of all spans of a request, as JSON, to this many times the size of the request, and
	// 8 MiB. Of the resource that spans share, only what is above MaxResource counts for each span.
	MaxGrowth   = 16
	MaxResource = 4 << 10

	minGrowth = 8 << 20
)

// Field numbers of the messages that hold values; see also ids.go.
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

// checkDepth refuses a document whose values nest too deep, before a decoder that calls itself for each level sees it.
func checkDepth(data []byte, encoding Encoding) error {
	deep := jsonTooDeep
	if encoding == Protobuf {
		deep = protobufTooDeep
	}
	if deep(data) {
		return fmt.Errorf("attribute values are nested deeper than %d levels", MaxDepth)
	}
	return nil
}

// jsonTooDeep counts brackets. A level of values takes at most three, the document
// around them fewer than 16. A document that is not JSON is the decoder's to refuse.
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

// fields says which fields of a message hold messages to look into, and how.
type fields map[protowire.Number]func(message []byte) (tooDeep bool)

// keyValue looks into an attribute.
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
	// A type of metric holds data points, whose attributes and exemplars have numbers of their own.
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

// scopedTooDeep looks into the resources, the scopes and the items of a request: they have the same numbers in all signals.
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
			return false // the decoder says what is wrong
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
