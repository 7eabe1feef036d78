package catalogue

import (
	"fmt"
	"io"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Describe writes what there is to know of kinds of checks, as Markdown, from the tables that the code itself uses.
func Describe(w io.Writer, kinds ...probes.Kind) error {
	p := printer{w: w}
	for _, k := range kinds {
		p.printf("## %s\n\n%s\n\n", k.Name, k.Description)
		p.printf("Condition `%s`. Looks every %s, each for at most %s; %d bad looks in a row make it bad, %d good ones make it good again.\n\n",
			k.Condition, k.Interval, k.Timeout, k.Thresholds.Failure, k.Thresholds.Success)
		p.printf("| Option | Type | Default | Meaning |\n|---|---|---|---|\n")
		for _, o := range strict.Settings(k.NewOptions()) {
			p.printf("| `%s` | %s | %s | %s |\n", o.Path, o.Type, code(o.Default), o.Doc)
		}
		p.printf("\n")
		p.reasons(k.Reasons)
	}
	return p.err
}

// DescribeCommon writes the reasons that every check can give.
func DescribeCommon(w io.Writer) error {
	p := printer{w: w}
	p.printf("## Every check\n\n")
	p.reasons(probes.Common)
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) reasons(table reasons.Table) {
	p.printf("| Reason | Severity | When | What to do |\n|---|---|---|---|\n")
	for _, r := range table {
		p.printf("| `%s` | %s | %s | %s |\n", r.Name, r.Severity, r.Says, r.Do)
	}
	p.printf("\n")
}

func code(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}
