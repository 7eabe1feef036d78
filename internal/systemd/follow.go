package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Waits between two attempts to subscribe. They double from the one to the other, and start over with a subscription
// that was had.
const (
	firstWait = time.Second
	longWait  = time.Minute
)

// subscribeLimit bounds one attempt to subscribe.
const subscribeLimit = 10 * time.Second

// Follow calls changed whenever one of the units may have changed its state, and whenever it has subscribed, since
// changes before that were not seen. It returns when ctx ends. A bus or a systemd that is restarted or away is
// subscribed to again, after a wait.
//
// It keeps a connection of its own: matches belong to a connection, and the one for calls comes and goes. The bus passes
// on nothing but signals of these units, so that a busy machine costs nothing. changed is called from one goroutine and
// must not block.
func (b *Bus) Follow(ctx context.Context, units []string, changed func()) {
	for wait := firstWait; ctx.Err() == nil; {
		if b.followOnce(ctx, units, changed) {
			wait = firstWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, longWait)
	}
}

// followOnce follows until the subscription is lost. It reports whether it had one.
func (b *Bus) followOnce(ctx context.Context, units []string, changed func()) (subscribed bool) {
	limited, cancel := context.WithTimeout(ctx, subscribeLimit)
	defer cancel()
	conn, err := connect(limited, b.socket)
	if err != nil {
		return false // whoever looks will find the bus away by themselves
	}
	defer func() { _ = conn.Close() }() // nothing was written that could be lost
	signals := make(chan *godbus.Signal, 16)
	conn.Signal(signals)
	if err := subscribe(limited, conn, units); err != nil {
		return false
	}
	cancel()
	changed()
	for {
		select {
		case <-ctx.Done():
			return true
		case s, open := <-signals:
			if !open {
				return true
			}
			switch {
			case arrived(s):
				if err := listenTo(ctx, conn); err != nil {
					return true
				}
				changed()
			case s.Name == changeSignal:
				changed()
			}
		}
	}
}

const (
	systemdName  = "org.freedesktop.systemd1"
	ownerSignal  = "org.freedesktop.DBus.NameOwnerChanged"
	changeSignal = "org.freedesktop.DBus.Properties.PropertiesChanged"
)

// arrived : a systemd has come to the bus, by which a new one knows of no subscription. It goes and comes when it
// executes itself anew.
func arrived(s *godbus.Signal) bool {
	if s.Name != ownerSignal || len(s.Body) < 3 {
		return false
	}
	owner, _ := s.Body[2].(string)
	return owner != ""
}

// subscribe asks for signals of these units and of systemd's coming and going.
func subscribe(ctx context.Context, conn *godbus.Conn, units []string) error {
	if err := conn.AddMatchSignalContext(ctx,
		godbus.WithMatchSender("org.freedesktop.DBus"), godbus.WithMatchInterface("org.freedesktop.DBus"),
		godbus.WithMatchMember("NameOwnerChanged"), godbus.WithMatchArg(0, systemdName),
	); err != nil {
		return fmt.Errorf("ask for signals of systemd: %w", err)
	}
	for _, u := range units {
		path := godbus.ObjectPath("/org/freedesktop/systemd1/unit/" + dbus.PathBusEscape(u))
		if err := conn.AddMatchSignalContext(ctx,
			godbus.WithMatchSender(systemdName), godbus.WithMatchObjectPath(path), godbus.WithMatchInterface("org.freedesktop.DBus.Properties"),
			godbus.WithMatchMember("PropertiesChanged"), godbus.WithMatchArg(0, "org.freedesktop.systemd1.Unit"),
		); err != nil {
			return fmt.Errorf("ask for signals of %s: %w", u, err)
		}
	}
	return listenTo(ctx, conn)
}

// listenTo tells systemd to send signals at all, which it does only while somebody has asked for them.
func listenTo(ctx context.Context, conn *godbus.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeLimit)
	defer cancel()
	err := conn.Object(systemdName, "/org/freedesktop/systemd1").CallWithContext(ctx, "org.freedesktop.systemd1.Manager.Subscribe", 0).Err
	var answer godbus.Error
	if errors.As(err, &answer) && answer.Name == "org.freedesktop.systemd1.AlreadySubscribed" {
		return nil // it took the subscription over from the systemd before it
	}
	return err
}
