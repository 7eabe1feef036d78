package probes

import (
	"fmt"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// ReasonUndeclared is a programming error: a probe gave a reason that its kind does not declare.
const ReasonUndeclared = "UndeclaredReason"

// Common are the reasons that any check can come to.
var Common = reasons.Table{
	{Name: health.ReasonPending, Severity: reasons.Unknown, Says: "the check has not been looked at often enough yet to say anything", Do: "wait for the first looks"},
	{Name: health.ReasonTimeout, Severity: reasons.Unknown, Says: "a look did not end within its deadline", Do: "see what the check reads for something that hangs, such as a dead network mount; or give the check a longer timeout"},
	{Name: health.ReasonPanicked, Severity: reasons.Unknown, Says: "a look ended in a programming error", Do: "report the stack trace from the agent's log"},
	{Name: health.ReasonLooksDisagree, Severity: reasons.Unknown, Says: "looks in a row contradict each other, so that none is believed", Do: "look at the check's recent results in the agent's log"},
	{Name: health.ReasonFlapping, Severity: reasons.Unknown, Says: "the check changed its verdict too often to be believed; it is held at the worst of them, whatever that is, until it is quiet; or its reason, and its verdict stands", Do: "find out what comes and goes; or change the check's flapping rule"},
	{Name: health.ReasonStale, Severity: reasons.Unknown, Says: "no look came to an end for longer than the check's staleAfter", Do: "see the agent's log for a check that hangs; or set staleAfter well above the check's interval and timeout"},
	{Name: health.ReasonPrerequisite, Severity: reasons.Unknown, Says: "a check that this one depends on is not well, so that this one says nothing", Do: "mend what the check named in the message finds"},
	{Name: ReasonUndeclared, Severity: reasons.Unknown, Says: "a probe gave a reason that its kind does not declare", Do: "report it: this is a programming error"},
}

// OK says that the thing is well. Message says what was looked at.
func OK(format string, args ...any) health.Result {
	return health.Result{Verdict: health.OK, Reason: health.ReasonOK, Message: fmt.Sprintf(format, args...)}
}

// NotApplicable says that the machine has no such thing.
func NotApplicable(format string, args ...any) health.Result {
	return health.Result{Verdict: health.NotApplicable, Reason: health.ReasonNotApplicable, Message: fmt.Sprintf(format, args...)}
}

// Because gives the result that a declared reason means; its severity decides the verdict.
func Because(table reasons.Table, reason, format string, args ...any) health.Result {
	return health.Result{Verdict: verdictOf(table.Find(reason).Severity), Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func verdictOf(s reasons.Severity) health.Verdict {
	switch s {
	case reasons.Degraded:
		return health.Degraded
	case reasons.Fatal:
		return health.Fatal
	case reasons.Unknown:
		return health.Unknown
	default:
		return health.OK
	}
}
