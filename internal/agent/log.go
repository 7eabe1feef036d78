package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
	slogjournal "github.com/systemd/slog-journal"
	"k8s.io/klog/v2"

	"github.com/fettle-dev/fettle/internal/config"
)

// NewLogger makes the agent's logger on its stderr, and gives it to the libraries too. Format auto is the journal when
// stderr is connected to it, text on a terminal, JSON else. The level can be changed while it is in use.
func NewLogger(c config.Log) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	handler, err := logHandler(c.Format, level)
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	return log, level, nil
}

func logHandler(format string, level slog.Leveler) (slog.Handler, error) {
	if format == "auto" {
		format = formatOf(os.Stderr)
	}
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.NewTextHandler(os.Stderr, options), nil
	case "journal":
		inner, err := slogjournal.NewHandler(&slogjournal.Options{Level: level, ReplaceAttr: journalField})
		if err != nil {
			return nil, fmt.Errorf("log to the journal: %w", err)
		}
		return newPatient(spoken{Handler: inner}, slog.NewTextHandler(os.Stderr, options)), nil
	default:
		return slog.NewJSONHandler(os.Stderr, options), nil
	}
}

func formatOf(stderr *os.File) string {
	if journal.Enabled() {
		if connected, err := journal.StderrIsJournalStream(); err == nil && connected {
			return "journal"
		}
	}
	if st, err := stderr.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		return "text"
	}
	return "json"
}

// journalField gives an attribute the name of a journal field: check is FETTLE_CHECK.
func journalField(_ []string, a slog.Attr) slog.Attr {
	var name strings.Builder
	name.WriteString("FETTLE_")
	for _, r := range a.Key {
		switch {
		case unicode.IsUpper(r):
			name.WriteRune('_')
			name.WriteRune(r)
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			name.WriteRune(unicode.ToUpper(r))
		default:
			name.WriteRune('_')
		}
	}
	a.Key = name.String()
	return a
}

// spoken repeats attributes in the message, since journalctl shows nothing else by default.
type spoken struct {
	slog.Handler
	said string
}

func (s spoken) Handle(ctx context.Context, r slog.Record) error {
	message := r.Message + s.said
	r.Attrs(func(a slog.Attr) bool {
		message += speak(a)
		return true
	})
	r.Message = message
	return s.Handler.Handle(ctx, r)
}

func (s spoken) WithAttrs(attrs []slog.Attr) slog.Handler {
	said := s.said
	for _, a := range attrs {
		said += speak(a)
	}
	return spoken{Handler: s.Handler.WithAttrs(attrs), said: said}
}

func (s spoken) WithGroup(name string) slog.Handler {
	return spoken{Handler: s.Handler.WithGroup(name), said: s.said}
}

func speak(a slog.Attr) string {
	value := a.Value.Resolve().String()
	if strings.ContainsAny(value, " \"=\n\t") || value == "" {
		value = strconv.Quote(value)
	}
	return " " + a.Key + "=" + value
}
