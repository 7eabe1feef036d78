package custom

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Pattern is a regular expression in the syntax of RE2; the empty one matches everything.
type Pattern string

// UnmarshalText takes an expression that compiles.
func (p *Pattern) UnmarshalText(text []byte) error {
	if _, err := regexp.Compile(string(text)); err != nil {
		return fmt.Errorf("is not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	*p = Pattern(text)
	return nil
}

// Allowed says what UnmarshalText takes.
func (Pattern) Allowed() string {
	return "a regular expression of RE2, e.g. ^ok$; (?m) makes ^ and $ match at lines"
}

// compile is for patterns that UnmarshalText took.
func (p Pattern) compile() *regexp.Regexp { return regexp.MustCompile(string(p)) }

// Reason is a name that the user gives to what a check finds.
type Reason string

var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// UnmarshalText takes a name in the form that conditions want, which means nothing else yet.
func (r *Reason) UnmarshalText(text []byte) error {
	name := string(text)
	switch {
	case name == "":
	case !reasonForm.MatchString(name):
		return fmt.Errorf("is not a reason")
	case probes.Common.Has(name), name == health.ReasonOK, name == health.ReasonNotApplicable, name == health.ReasonFlapping, name == health.ReasonStale, name == health.ReasonPrerequisite:
		return fmt.Errorf("is a reason with a meaning of its own")
	}
	*r = Reason(name)
	return nil
}

// Allowed says what UnmarshalText takes.
func (Reason) Allowed() string {
	return "letters and digits that begin with a capital letter, e.g. RaidDegraded; no reason that any check can give"
}

// declared is the table of what the name stands for, empty without a name.
func (r Reason) declared() reasons.Table {
	if r == "" {
		return nil
	}
	return reasons.Table{{Name: string(r), Severity: reasons.Fatal, Says: "the check fails, as its configuration words it", Do: "see the message, and whoever configured the check"}}
}

// instead gives a result this name if it has one of these reasons.
func (r Reason) instead(result health.Result, of ...string) health.Result {
	for _, name := range of {
		if r != "" && result.Reason == name {
			result.Reason = string(r)
		}
	}
	return result
}

// validate reports a name that the kind itself uses.
func (r Reason) validate(table reasons.Table, fault func(what, allowed string, keys ...string)) {
	if table.Has(string(r)) {
		fault(fmt.Sprintf("%q is a reason of the kind itself", string(r)), "another name, or none", "reason")
	}
}
