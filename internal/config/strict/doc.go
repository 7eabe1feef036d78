// Package strict decodes YAML into structs and refuses whatever it does not fully understand, with the place.
//
// A struct's fields carry these tags:
//
//	key     the YAML key; a field without it is not decoded
//	doc     what the key sets, as a clause
//	min,max bounds of a number, duration or size, inclusive, in the form the value is written
//	oneof   the allowed texts, separated by commas
//	is      "abspath": an absolute path without ".." parts
//	default words for a default that depends on other keys
//	secret  "true": the value is not shown
//	restart "true": a change takes effect at the next start of the program
//
// Fields may be strings, booleans, integers, time.Duration, types with UnmarshalText, lists of these, and structs. What
// only several keys together can get wrong, a struct says with a Validate method. The package knows nothing of what is
// configured.
package strict
