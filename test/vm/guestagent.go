package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// guestAgent speaks to the QEMU guest agent over the unix socket that QEMU joins to a virtio serial port. The socket
// outlives the guest's system, so bytes of a system that was reset may still be in it: every command is preceded by
// a synchronisation with a number of its own, and answers to older commands are thrown away.
// Source: QEMU Guest Agent Protocol Reference, guest-sync-delimited.
type guestAgent struct {
	socket string

	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

// answerLimit bounds one command of the protocol, none of which waits for anything in the guest.
const answerLimit = 20 * time.Second

// agentError is a refusal of the guest agent, as opposed to no answer.
type agentError struct{ Class, Desc string }

func (e *agentError) Error() string { return e.Desc }

// call runs one command. An error that is no *agentError means that no answer came, and the command may have run.
func (g *guestAgent) call(ctx context.Context, name string, arguments, result any) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := g.exchange(ctx, name, arguments, result)
	var refused *agentError
	if err != nil && !errors.As(err, &refused) {
		g.disconnect()
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("guest agent, %s: %w", name, err)
	}
	return nil
}

func (g *guestAgent) exchange(ctx context.Context, name string, arguments, result any) error {
	if g.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
		if err != nil {
			return err
		}
		g.conn, g.in = conn, bufio.NewReader(conn)
	}
	conn := g.conn
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := g.synchronise(); err != nil {
		return err
	}
	if err := g.send(name, arguments); err != nil {
		return err
	}
	return g.receive(result)
}

func (g *guestAgent) synchronise() error {
	const delimiter = 0xFF // never part of JSON; resets the parser at either end
	if _, err := g.conn.Write([]byte{delimiter}); err != nil {
		return err
	}
	number := rand.Int64N(1 << 53)
	if err := g.send("guest-sync-delimited", map[string]any{"id": number}); err != nil {
		return err
	}
	for {
		if _, err := g.in.ReadBytes(delimiter); err != nil {
			return err
		}
		var seen int64
		if err := g.receive(&seen); err == nil && seen == number {
			return nil
		} else if err != nil && !isJSONError(err) {
			return err
		}
	}
}

// isJSONError tells an answer that makes no sense, as the rest of one does, from a broken connection.
func isJSONError(err error) bool {
	var refused *agentError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &refused) || errors.As(err, &syntax) || errors.As(err, &kind)
}

func (g *guestAgent) send(name string, arguments any) error {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil {
		return err
	}
	_, err = g.conn.Write(append(line, '\n'))
	return err
}

func (g *guestAgent) receive(result any) error {
	line, err := g.in.ReadBytes('\n')
	if err != nil {
		return err
	}
	answer := struct {
		Return any
		Error  *agentError
	}{Return: result}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

// disconnect makes the next call start over with a new connection.
func (g *guestAgent) disconnect() {
	if g.conn != nil {
		g.conn.Close()
		g.conn, g.in = nil, nil
	}
}

func (g *guestAgent) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disconnect()
}
