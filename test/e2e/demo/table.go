package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	"github.com/fettle-dev/fettle/test/e2e/stack"
)

// table shows all nodes, redrawn in place on a terminal and printed anew elsewhere, whenever something in it changes.
type table struct {
	stack *stack.Stack
	out   io.Writer
	tty   bool

	mu    sync.Mutex
	nodes map[string]*corev1.Node
	lines int    // drawn by the last draw, to go back over
	drawn string // by the last draw
}

func newTable(s *stack.Stack, out *os.File) *table {
	info, err := out.Stat()
	return &table{stack: s, out: out, nodes: map[string]*corev1.Node{}, tty: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// show follows the nodes until the context ends.
func (t *table) show(ctx context.Context) {
	for ctx.Err() == nil {
		events, err := t.stack.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		if err != nil {
			_ = pause(ctx, time.Second)
			continue
		}
		for event := range events.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok {
				t.take(event.Type, node)
			}
		}
	}
}

func (t *table) take(what watch.EventType, node *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == watch.Deleted {
		delete(t.nodes, node.Name)
	} else {
		t.nodes[node.Name] = node
	}
	t.draw()
}

// say prints a line above the table.
func (t *table) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	fmt.Fprintf(t.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
	t.drawn = ""
	t.draw()
}

func (t *table) draw() {
	text := t.text()
	if text == t.drawn {
		return
	}
	t.erase()
	fmt.Fprint(t.out, text)
	t.drawn, t.lines = text, strings.Count(text, "\n")
}

func (t *table) erase() {
	if t.tty && t.lines > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", t.lines)
	}
	t.lines = 0
}

func (t *table) text() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tHEALTHY\tNETWORK\tSTORAGE\tREASON\tTAINTS")
	for _, n := range t.stack.Nodes {
		node, ok := t.nodes[n.Name]
		if !ok {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name,
			status(node, fettlev1alpha1.ConditionHealthy), status(node, fettlev1alpha1.ConditionNetworkReady),
			status(node, fettlev1alpha1.ConditionStorageReady), reason(node), taints(node))
	}
	_ = w.Flush()
	return b.String()
}

func status(node *corev1.Node, condition string) string {
	if c := stack.FindCondition(node, condition); c != nil {
		return string(c.Status)
	}
	return "-"
}

func reason(node *corev1.Node) string {
	if c := stack.FindCondition(node, fettlev1alpha1.ConditionHealthy); c != nil {
		return c.Reason
	}
	return "-"
}

func taints(node *corev1.Node) string {
	var all []string
	for _, t := range node.Spec.Taints {
		all = append(all, t.Key+":"+string(t.Effect))
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ",")
}
