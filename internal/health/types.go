package health

import "time"

// Verdict is what one look at one thing came to.
type Verdict string

const (
	// OK : looked, and it is well.
	OK Verdict = "ok"
	// Degraded : works, but needs attention; the condition stays True with the check's reason.
	Degraded Verdict = "degraded"
	// Fatal : does not work; the condition is False.
	Fatal Verdict = "fatal"
	// Unknown : could not look; the condition is Unknown.
	Unknown Verdict = "unknown"
	// NotApplicable : the machine has no such thing.
	NotApplicable Verdict = "notApplicable"
)

// Result is one look of one check. Message should carry no numbers that change from look to look: it is held still where
// they do, see Wording.
type Result struct {
	Verdict Verdict
	// Reason is a name from the check's table of reasons, or one of the reasons of this package.
	Reason  string
	Message string
}

// Reasons that any check can come to.
const (
	// ReasonOK is the reason of a check that is well.
	ReasonOK = "OK"
	// ReasonNotApplicable is the reason of a check that has nothing to look at.
	ReasonNotApplicable = "NotApplicable"
	// ReasonPending : the check has not been looked at often enough yet to say anything.
	ReasonPending = "Pending"
	// ReasonTimeout : a look did not end within its deadline.
	ReasonTimeout = "CheckTimedOut"
	// ReasonPanicked : a look ended in a programming error.
	ReasonPanicked = "CheckPanicked"
	// ReasonLooksDisagree : enough looks in a row to be believed, but they contradict each other.
	ReasonLooksDisagree = "LooksDisagree"
	// ReasonFlapping : the check changed its verdict too often, and is held at its worst until it is quiet; or its reason
	// did, and its verdict stands.
	ReasonFlapping = "Flapping"
	// ReasonStale : no look came to an end for longer than the check's StaleAfter.
	ReasonStale = "ResultStale"
	// ReasonPrerequisite : a check that this one depends on is not well, so that this one says nothing.
	ReasonPrerequisite = "PrerequisiteFailed"
)

// Status is the status of a condition, with the values of Kubernetes.
type Status string

// True is good, for every type of condition.
const (
	StatusTrue    Status = "True"
	StatusFalse   Status = "False"
	StatusUnknown Status = "Unknown"
)

// Thresholds say how many equal looks in a row it takes to believe them.
type Thresholds struct {
	// Failure is the number of looks in a row, other than ok, after which a well check is not well. At least 1.
	Failure int
	// Success is the number of ok looks in a row after which a check is well (again). At least 1.
	Success int
}

// Check is what the engine needs to know of a check.
type Check struct {
	// Name is unique, e.g. "cni-config".
	Name string
	// Definition tells what the check looks at and how, in one word: a hash of its options, say. Verdicts found under
	// another definition say nothing of this check.
	Definition string
	// Condition is the type of the Node condition the check feeds, e.g. "fettle.dev/NetworkReady".
	Condition  string
	Thresholds Thresholds
	// Severity is the worst that the check may count as; empty: SeverityFatal.
	Severity Severity
	// MinHold is how long at least a check that is not well stays so, however good its looks are. Zero: not at all.
	MinHold  time.Duration
	Flapping Flapping
	// StaleAfter is how long a verdict stands without a look that came to an end. Zero: for ever.
	StaleAfter time.Duration
	Clearing   Clearing
	// DependsOn names checks without which this one says nothing: while one of them is fatal or unknown, this check is
	// Unknown with ReasonPrerequisite and counts as no fault of its own. Names of checks that are not there, do not apply
	// or run dry stand in nobody's way.
	DependsOn []string
	// DryRun : the check is looked at and shown, and feeds no condition and no count.
	DryRun bool
}

// Severity caps what a check may count as.
type Severity string

const (
	// SeverityFatal : a fatal check makes its condition False.
	SeverityFatal Severity = "fatal"
	// SeverityDegraded : at worst, also where it cannot look, its condition stays True with the check's reason.
	SeverityDegraded Severity = "degraded"
	// SeverityInfo : it counts as ok, whatever it finds; its reason and message say what that is.
	SeverityInfo Severity = "info"
)

// Flapping says when a check changes too often to be believed: Changes changes of verdict within Within, or of reason
// while the verdict stands. Zero: never.
type Flapping struct {
	Changes int
	Within  time.Duration
}

// Clearing says what makes a fatal check well again.
type Clearing string

const (
	// ClearByLooks : good looks, as the thresholds say. The zero value means this too.
	ClearByLooks Clearing = "looks"
	// ClearByReboot : good looks after the machine was booted anew; the boot ID tells.
	ClearByReboot Clearing = "reboot"
)

// Condition is one condition to publish.
type Condition struct {
	Type    string
	Status  Status
	Reason  string
	Message string
}

// CheckState is where a check stands after its thresholds.
type CheckState struct {
	Name string
	Result
	// Since is when the check came to this verdict and reason.
	Since time.Time
	// DryRun : it is shown and counts for nothing.
	DryRun bool
}

// Counts counts checks by verdict.
type Counts struct{ OK, Degraded, Fatal, Unknown, NotApplicable int }

// Report is everything to be said of a machine at one moment.
type Report struct {
	// Decided is true once every check has come to a verdict, or to Unknown by its own looks.
	Decided bool
	// Conditions by type, sorted, of the types that are decided: those with a fatal check, which nothing can make worse,
	// and those all of whose checks are decided. A type all of whose checks are NotApplicable is absent.
	Conditions []Condition
	// Pending are the types that are not decided yet, sorted: whatever the Node says of them stays.
	Pending []string
	// Checks in the order they were configured.
	Checks []CheckState
	Counts Counts
	// Summary is the worst of all checks.
	Summary Summary
}

// Summary is what the checks come to in one word.
type Summary struct {
	// Verdict of the worst check; NotApplicable when there is no other.
	Verdict Verdict
	// Reason is that of the worst check, empty when all are well.
	Reason string
	// Since is when the worst check came to its verdict and reason, the first one where several say the same; when all are
	// well, when the last of them came to be so; and of a machine that is pending, when it came to be. Zero before the
	// first look.
	Since time.Time
}
