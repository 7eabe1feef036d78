// Package reasons is the form in which every part of Fettle declares the reasons it may publish.
//
// A reason is API: dashboards, alerts and repair rules match on it, so it is declared once, in a table beside the code
// that uses it, documented from there, and never renamed. The package knows nothing of what the reasons are about.
package reasons

import "fmt"

// Severity says how bad a reason is.
type Severity string

const (
	// Info is worth an event or a metric and changes no condition.
	Info Severity = "info"
	// Degraded keeps the condition True, with this reason.
	Degraded Severity = "degraded"
	// Fatal makes the condition False: the machine should take no new work.
	Fatal Severity = "fatal"
	// Unknown makes the condition Unknown: what the reason is about could not be looked at.
	Unknown Severity = "unknown"
)

// Reason is one entry of a table.
type Reason struct {
	// Name is UpperCamelCase, as conditions require.
	Name string
	// Severity of the reason; it decides the verdict of a check that gives it.
	Severity Severity
	// Says is what is the case when the reason is given, as a clause.
	Says string
	// Do is what a person can do about it.
	Do string
}

// Table is all reasons of one check or one part.
type Table []Reason

// Find returns the reason of that name. Using a name the table lacks is a programming error that the tests of every
// table catch; Find answers it with a fatal entry that says so rather than with silence.
func (t Table) Find(name string) Reason {
	for _, r := range t {
		if r.Name == name {
			return r
		}
	}
	return Reason{Name: name, Severity: Fatal, Says: fmt.Sprintf("undeclared reason %q", name)}
}

// Has reports whether the table declares the name.
func (t Table) Has(name string) bool {
	for _, r := range t {
		if r.Name == name {
			return true
		}
	}
	return false
}
