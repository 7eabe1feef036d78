package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a listener. Whoever asks sends a few hundred bytes, takes some tens of kilobytes and is on this machine.
const (
	maxConnections = 16
	maxHeaderBytes = 8 << 10
	maxBodyBytes   = 4 << 10
	readTimeout    = 5 * time.Second
	writeTimeout   = 10 * time.Second
	idleTimeout    = 30 * time.Second
	// farewell is how long answers under way are waited for at the end.
	farewell = time.Second
)

// Waits between two tries to get a socket or an address that could not be had.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// Options of a server.
type Options struct {
	// Socket is the path of the unix socket; empty: none.
	Socket string
	// MetricsAddress is where scrapers come; empty: none.
	MetricsAddress string
	// StatusFile is the path of the file for everybody; empty: none.
	StatusFile string
	// Agent is who speaks. Its Stalled is the Source's to say.
	Agent  Agent
	Board  *Board
	Source Source
	Log    *slog.Logger
}

// Server answers questions about a running agent.
type Server struct {
	o Options
	// yields while another agent answers on our socket: then the status file is its, too.
	yields atomic.Bool
	// tried ends with the first try to have the socket.
	tried     chan struct{}
	triedOnce sync.Once
}

// New makes a server; Run starts it.
func New(o Options) *Server { return &Server{o: o, tried: make(chan struct{})} }

// Status is everything there is to say now.
func (s *Server) Status() Status {
	now := Status{
		SaidAt: moment(time.Now()), Agent: s.o.Agent, Configuration: s.o.Source.Configuration(), Health: s.o.Board.Health(),
		Cluster: s.o.Source.Cluster(), Credential: s.o.Source.Credential(),
	}
	now.Agent.Stalled = s.o.Source.Stalled()
	return now
}

func (s *Server) view() view {
	v := view{status: s.Status(), counters: s.o.Source.Counters(), board: s.o.Board}
	v.lookAtProcess()
	return v
}

// Run answers until the context ends. What cannot be had, a socket in use or a folder that is read-only, is logged and
// tried again; Run does not end for it.
func (s *Server) Run(ctx context.Context) {
	var parts sync.WaitGroup
	if s.o.Socket != "" {
		parts.Go(func() { s.serve(ctx, "socket", s.o.Socket, listenSocket, s.routes(true)) })
	}
	if s.o.MetricsAddress != "" {
		parts.Go(func() { s.serve(ctx, "address", s.o.MetricsAddress, listenAddress, s.routes(false)) })
	}
	if s.o.StatusFile != "" {
		parts.Go(func() { s.keepFile(ctx) })
	}
	parts.Wait()
}

// routes are the questions that are answered. Status has messages that name files and addresses of the machine, so that
// it is told to root on the socket alone, and to those who may read the status file.
func (s *Server) routes(status bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.answerHealth)
	mux.HandleFunc("GET /readyz", s.answerReady)
	mux.HandleFunc("GET /metrics", s.answerMetrics)
	if status {
		mux.HandleFunc("GET /status", s.answerStatus)
	}
	return http.MaxBytesHandler(mux, maxBodyBytes)
}

func (s *Server) answerHealth(w http.ResponseWriter, _ *http.Request) {
	if why := s.o.Source.Stalled(); why != "" {
		refuse(w, why)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // whoever asked is gone
}

func (s *Server) answerReady(w http.ResponseWriter, _ *http.Request) {
	if reasons := Unready(s.Status()); len(reasons) > 0 {
		refuse(w, strings.Join(reasons, "\n"))
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func refuse(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusServiceUnavailable) }

func (s *Server) answerStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := encode(s.Status())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func encode(s Status) ([]byte, error) {
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	return append(body, '\n'), nil
}

func (s *Server) answerMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textFormat)
	_ = writeMetrics(w, s.view()) // whoever asked is gone
}

// serve listens and answers until the context ends, and listens anew when that fails.
func (s *Server) serve(ctx context.Context, what, where string, listen func(context.Context, string) (net.Listener, error), routes http.Handler) {
	log := s.o.Log.With(what, where)
	said := ""
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, longestRetry) {
		listener, err := listen(ctx, where)
		if what == "socket" {
			s.yields.Store(errors.Is(err, errOther))
			s.triedOnce.Do(func() { close(s.tried) })
		}
		if err == nil {
			log.Info("answers questions about the agent")
			wait, said = firstRetry, ""
			err = answer(ctx, listener, routes, s.o.Log)
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			log.Warn("cannot answer questions about the agent; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// answer serves one listener until the context ends.
func answer(ctx context.Context, listener net.Listener, routes http.Handler, log *slog.Logger) error {
	all := &guests{room: maxConnections}
	server := &http.Server{
		Handler: all.serve(routes), ConnContext: all.arrive, ConnState: all.leave, MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended.Go(func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close() // whoever still listens has had its time
		}
	})
	if own, ok := listener.(*ownSocket); ok {
		ended.Go(func() { own.watch(ctx) })
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answer on %s: %w", listener.Addr(), err)
	}
	return nil
}

func listenAddress(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
