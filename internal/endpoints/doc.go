// Package endpoints is where a running agent can be asked how it does: over HTTP on a unix socket and, where configured,
// on an address for scrapers, and in a file that everybody may read.
//
// The Board holds what is known of the machine's health, a Source the rest; both are asked when somebody asks, so that an
// agent nobody looks at spends nothing on it. Nothing here is needed for the agent's work: a socket that cannot be had, a
// full disk and a reader that never finishes cost lines in the log and nothing else.
//
// It knows neither the checks nor the API server, and never says anything that the agent's other parts did not tell it.
package endpoints
