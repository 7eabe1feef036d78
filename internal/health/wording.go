package health

import (
	"strconv"
	"strings"
	"time"
)

const (
	// stillLooks is how many times in a row the same text makes a message that stands still.
	stillLooks = 5
	// firstPause and longestPause bound the time between two renewals of a message that stands still and moves by turns: each
	// is twice as long as the one before.
	firstPause   = time.Minute
	longestPause = 24 * time.Hour
)

// Wording holds a message still while nothing changes in it but numbers: a fill, an age, a process, a port. Each would be
// a write to an object that many watch, and to the disk. The zero Wording has said nothing.
//
// Nothing is held for ever. A message is renewed when its words change; when one of its numbers is more than twice all
// that had been seen in its place when it was last renewed, or less than half; and when it moves after it stood still, or
// stands still after it moved. The first move is believed. So a step is seen at once, numbers that grow without end renew
// it ever more seldom, and numbers that go to and fro do not.
type Wording struct {
	shown   string
	words   string // of shown, without its numbers
	numbers []number
	last    string
	still   int  // how many times in a row it was last
	stood   bool // what was before last stood still
	moved   bool // since these words came up
	renewed time.Time
	pause   time.Duration
}

// number is one place of a message where a number stands.
type number struct {
	// seen since these words came up; known of that when the message was last renewed.
	seen, known span
}

// span is from the lowest to the highest.
type span struct{ low, high float64 }

// Choose takes in the message of a look and gives the one to say.
func (w *Wording) Choose(message string, at time.Time) string {
	if message != w.last {
		w.last, w.still, w.stood = message, 0, w.still >= stillLooks
	}
	w.still++
	if message == w.shown {
		return message
	}
	words, numbers := partsOf(message)
	if words != w.words || w.shown == "" {
		*w = Wording{words: words, last: message, still: 1}
		for _, n := range numbers {
			w.numbers = append(w.numbers, number{seen: span{n, n}})
		}
		return w.renew(message, at)
	}
	first := !w.moved
	w.moved = true
	if w.widen(numbers) || first {
		return w.renew(message, at)
	}
	step := w.still >= stillLooks || w.stood && w.still == 1
	if step && at.Sub(w.renewed) >= w.pause {
		w.pause = min(max(2*w.pause, firstPause), longestPause)
		return w.renew(message, at)
	}
	return w.shown
}

func (w *Wording) renew(message string, at time.Time) string {
	w.shown, w.renewed = message, at
	for i := range w.numbers {
		w.numbers[i].known = w.numbers[i].seen
	}
	return message
}

// widen takes in numbers, and reports whether one of them is far from all that are known in its place.
func (w *Wording) widen(numbers []float64) (far bool) {
	for i, n := range numbers {
		at := &w.numbers[i]
		far = far || n > 2*at.known.high || n < at.known.low/2
		at.seen = span{min(at.seen.low, n), max(at.seen.high, n)}
	}
	return far
}

// partsOf takes the numbers out of a message, which are digits with at most one point between them.
func partsOf(message string) (words string, numbers []float64) {
	var rest strings.Builder
	for i := 0; i < len(message); {
		end := numberEnd(message, i)
		if end == i {
			rest.WriteByte(message[i])
			i++
			continue
		}
		n, _ := strconv.ParseFloat(message[i:end], 64) // of very many digits it is infinite
		numbers = append(numbers, n)
		rest.WriteByte(0) // which no message has
		i = end
	}
	return rest.String(), numbers
}

// numberEnd is where the number ends that starts at i; i where none does.
func numberEnd(s string, i int) int {
	end := digitsEnd(s, i)
	if end > i && end < len(s) && s[end] == '.' {
		if fraction := digitsEnd(s, end+1); fraction > end+1 {
			return fraction
		}
	}
	return end
}

func digitsEnd(s string, i int) int {
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}
