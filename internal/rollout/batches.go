package rollout

// Growth says how batches follow one another.
type Growth string

const (
	// Fixed : all batches are as large as the first.
	Fixed Growth = "fixed"
	// Linear : each is larger than the one before by Step, after a failure smaller.
	Linear Growth = "linear"
	// Exponential : each is Step times the one before, after a failure the part.
	Exponential Growth = "exponential"
)

// Strategy is that of a DeploymentPolicy, with its defaults filled in.
type Strategy struct {
	Growth Growth
	// Initial is the size of the first batch, in nodes.
	Initial int
	// Step is the delta, or the factor.
	Step int
	// Threshold is the percentage of a batch that has to succeed.
	Threshold int
	// FailureThreshold is after how many failed batches in a row no other follows; 0 for never.
	FailureThreshold int
	// SafetyLimit is the percentage of the nodes beyond which a failed batch makes the next no smaller.
	SafetyLimit int
}

// Batches is where the batches of a compartment stand. The zero value is before the first.
type Batches struct {
	// Number of the batches that were evaluated.
	Number int
	// Size and Failed are of the last of them.
	Size   int
	Failed bool
	// FailuresInARow of batches.
	FailuresInARow int
	// Stopped : no other batch follows until somebody resets.
	Stopped bool
}

// Compartment is how its nodes stand.
type Compartment struct {
	// Nodes in all; Complete and Failed have come to an end, one way or the other.
	Nodes, Complete, Failed int
	// Ceiling is how many may be worked on at once, by the budget.
	Ceiling int
}

func (c Compartment) left() int { return max(c.Nodes-c.Complete-c.Failed, 0) }

// percent of the nodes that have come to an end.
func (c Compartment) percent() int {
	if c.Nodes == 0 {
		return 100
	}
	return (c.Complete + c.Failed) * 100 / c.Nodes
}

// Ceiling is how many of a number of nodes a budget allows at once: a count, or else a percentage, rounded down; never
// less than one.
func Ceiling(nodes int, count, percent *int32) int {
	switch {
	case count != nil:
		return max(min(nodes, int(*count)), 1)
	case percent != nil:
		return max(nodes*int(*percent)/100, 1)
	}
	return max(nodes, 1)
}

// Next is the size of the next batch; 0 when there is none. A batch never exceeds the budget, whatever the strategy.
func (s Strategy) Next(b Batches, c Compartment) int {
	if b.Stopped || c.left() == 0 {
		return 0
	}
	size := s.Initial
	if b.Number > 0 {
		size = s.grow(b, c)
	}
	return max(min(size, c.left(), c.Ceiling), 1)
}

func (s Strategy) grow(b Batches, c Compartment) int {
	shrink := b.Failed && c.percent() < s.SafetyLimit
	switch {
	case s.Growth == Linear && shrink:
		return b.Size - s.Step
	case s.Growth == Linear:
		return b.Size + s.Step
	case s.Growth == Exponential && shrink:
		return b.Size / s.Step
	case s.Growth == Exponential:
		return b.Size * s.Step
	}
	return s.Initial
}

// Evaluate counts a batch that has come to its end: so many of its nodes succeeded, the others failed. One without any such
// node says nothing.
func (s Strategy) Evaluate(b Batches, succeeded, failed int) Batches {
	size := succeeded + failed
	if size == 0 {
		return b
	}
	b.Number, b.Size = b.Number+1, size
	if b.Failed = succeeded*100/size < s.Threshold; !b.Failed {
		b.FailuresInARow = 0
		return b
	}
	b.FailuresInARow++
	b.Stopped = b.Stopped || s.FailureThreshold > 0 && b.FailuresInARow >= s.FailureThreshold
	return b
}
