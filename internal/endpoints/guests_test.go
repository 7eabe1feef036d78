package endpoints

import (
	"net"
	"net/http"
	"slices"
	"testing"
)

// came is a connection of which a test sees whether it was closed.
type came struct {
	net.Conn
	name   string
	closed *[]string
}

func (c came) Close() error {
	*c.closed = append(*c.closed, c.name)
	return nil
}

func TestWhoHasToGoWhereThereIsNoRoom(t *testing.T) {
	for _, tc := range []struct {
		name     string
		answered string // of a, b and c, which came in that order
		leaves   bool   // b does, of itself
		want     []string
	}{
		{name: "the oldest", want: []string{"a"}},
		{name: "but none that is being answered", answered: "a", want: []string{"b"}},
		{name: "unless all are", answered: "abc", want: []string{"a"}},
		{name: "nobody where one has left", leaves: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &guests{room: 3}
			var closed []string
			for i, name := range []string{"a", "b", "c"} {
				g.arrive(t.Context(), came{name: name, closed: &closed})
				g.answering(g.here[i], slices.Contains([]byte(tc.answered), name[0]))
			}
			if tc.leaves {
				g.leave(came{name: "b", closed: &closed}, http.StateClosed)
			}
			g.arrive(t.Context(), came{name: "d", closed: &closed})
			if !slices.Equal(closed, tc.want) || len(g.here) != 3 {
				t.Errorf("%v had to go, want %v; %d are here", closed, tc.want, len(g.here))
			}
		})
	}
}
