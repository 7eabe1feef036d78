package endpoints

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// guests are the connections to one listener. Anybody on the machine may open some and say nothing, so that where there is
// no room for another the one goes that has been there longest without being answered: nobody can keep others out.
type guests struct {
	room int

	mu   sync.Mutex
	here []*guest // in the order in which they came
}

type guest struct {
	conn     net.Conn
	answered bool // a question of it is being answered; guests' mu guards it
}

type guestKey struct{}

// arrive takes a connection in; it is for http.Server.ConnContext.
func (g *guests) arrive(ctx context.Context, conn net.Conn) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.here) >= g.room {
		i := max(slices.IndexFunc(g.here, func(other *guest) bool { return !other.answered }), 0)
		_ = g.here[i].conn.Close() // the server notices
		g.here = slices.Delete(g.here, i, i+1)
	}
	one := &guest{conn: conn}
	g.here = append(g.here, one)
	return context.WithValue(ctx, guestKey{}, one)
}

// leave forgets a connection that is closed; it is for http.Server.ConnState.
func (g *guests) leave(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.here = slices.DeleteFunc(g.here, func(one *guest) bool { return one.conn == conn })
}

// serve has questions answered that are whole.
func (g *guests) serve(answer http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, _ := r.Context().Value(guestKey{}).(*guest)
		g.answering(one, true)
		defer g.answering(one, false)
		answer.ServeHTTP(w, r)
	})
}

func (g *guests) answering(one *guest, now bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one.answered = now
}
