// Package strict decodes YAML into structs and refuses whatever it does not fully understand, with the place.
//
// A struct's fields carry these tags:
//
//	key     the YAML key; a field without it is not decoded
//	doc     what the key sets, as a clause
//	min,max bounds of a number, duration or size, inclusive, in the form the value is written
//	oneof   the allowed texts, separated by commas
//	is      "abspath": an absolute path without ".." parts
//
// Fields may be strings, booleans, integers, time.Duration, types with UnmarshalText, lists of these, and structs. What
// only several keys together can get wrong, a struct says with a Validate method. The package knows nothing of what is
// configured.
package strict
