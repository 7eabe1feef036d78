package main

import (
	"math"
	"strings"
)

const (
	clock  = `([01][0-9]|2[0-3]):[0-5][0-9]`
	moment = `-[0-9]{2}-[0-9]{2}T` + clock + `:[0-5][0-9](\.[0-9]{1,9})?`
	// timePattern is RFC 3339 as Go reads it. Written again as UTC, the year must still have four digits, and the time must
	// not be Go's zero time, which is written as null. The format date-time sees to it that the day exists.
	timePattern = `^([1-8][0-9]{3}` + moment + `(Z|[+-]` + clock + `)|9[0-9]{3}` + moment + `Z)$`

	// quantityPattern is that of controller-gen with whole exponents, of at most two digits: Go writes numbers out in full
	// to compare them, so that a large exponent would take all memory.
	quantityPattern   = `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	maxQuantityLength = 64
)

// narrow changes every schema at or below a part of a CRD.
func narrow(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			narrow(item)
		}
	case map[string]any:
		narrowSchema(part)
		for _, value := range part {
			narrow(value)
		}
	}
}

// narrowSchema changes a schema itself. What is no schema has none of the keys that it looks for. Integers need nothing: the
// API server holds them to their format.
func narrowSchema(schema map[string]any) {
	format, _ := schema["format"].(string)
	pattern, _ := schema["pattern"].(string)
	switch isIntOrString := schema["x-kubernetes-int-or-string"] == true; {
	case format == "date-time":
		// For a string with a format the API server takes an array too. No array has both one item at least and none at most.
		schema["pattern"], schema["minItems"], schema["maxItems"] = timePattern, 1, 0
	case isIntOrString && strings.Contains(pattern, "[KMGTPE]i"):
		schema["pattern"], schema["maxLength"] = quantityPattern, maxQuantityLength
	case isIntOrString:
		schema["minimum"], schema["maximum"] = math.MinInt32, math.MaxInt32
	}
}
