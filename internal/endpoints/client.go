package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// maxAnswer bounds what is taken in of an answer, in bytes.
const maxAnswer = 8 << 20

// Ask asks the agent that listens on a socket for its status.
func Ask(ctx context.Context, socket string) (Status, error) {
	body, err := Get(ctx, socket, "/status")
	if err != nil {
		return Status{}, err
	}
	return decode(body, socket)
}

// Get asks the agent that listens on a socket one question, such as /metrics.
func Get(ctx context.Context, socket, question string) ([]byte, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+question, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", socket, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s for %s: %s", socket, question, response.Status)
	}
	return body, nil
}

// ReadFile reads what an agent last wrote into its status file.
func ReadFile(path string) (Status, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return Status{}, fmt.Errorf("read the status file: %w", err)
	}
	return decode(body, path)
}

func decode(body []byte, from string) (Status, error) {
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		return Status{}, fmt.Errorf("understand the status from %s: %w", from, err)
	}
	return s, nil
}
