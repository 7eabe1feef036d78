package catalogue

import (
	"fmt"
	"io"
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Describe writes what there is to know of kinds of checks, as Markdown, from the tables that the code itself uses.
func Describe(w io.Writer, kinds ...probes.Kind) error {
	p := printer{w: w}
	for _, k := range kinds {
		p.printf("## %s\n\n%s\n\n", k.Name, k.Description)
		if k.Template {
			p.printf("A template: there is no such check by itself; each entry `{name: NAME, kind: %s}` of the configuration makes one.\n\n", k.Name)
		}
		p.printf("Condition `%s`. Looks every %s, each for at most %s; %d bad looks in a row make it bad, %d good ones make it good again.",
			k.Condition, k.Interval, k.Timeout, k.Thresholds.Failure, k.Thresholds.Success)
		if k.Clearing == health.ClearByReboot {
			p.printf(" What is fatal stays so until the machine was rebooted.")
		}
		if len(k.DependsOn) > 0 {
			p.printf(" Says nothing while `%s` fails.", strings.Join(k.DependsOn, "` or `"))
		}
		p.printf("\n\n")
		p.options(k)
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

func (p *printer) options(k probes.Kind) {
	options := strict.Settings(k.NewOptions())
	if len(options) == 0 {
		p.printf("It has no options of its own.\n\n")
		return
	}
	p.printf("| Option | Type | Default | Meaning |\n|---|---|---|---|\n")
	for _, o := range options {
		p.printf("| `%s` | %s | %s | %s |\n", o.Path, o.Type, code(o.Default), cell(o.Doc))
	}
	p.printf("\n")
}

func (p *printer) reasons(table reasons.Table) {
	p.printf("| Reason | Severity | When | What to do |\n|---|---|---|---|\n")
	for _, r := range table {
		p.printf("| `%s` | %s | %s | %s |\n", r.Name, r.Severity, cell(r.Says), cell(r.Do))
	}
	p.printf("\n")
}

// cell keeps a text within its cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func code(text string) string {
	if text == "" {
		return "none"
	}
	return "`" + cell(text) + "`"
}
