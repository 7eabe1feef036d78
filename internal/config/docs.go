package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/fettle-dev/fettle/internal/config/strict"
	"github.com/fettle-dev/fettle/internal/probes"
)

// Docs writes the reference of all keys as Markdown, from the tables that decode them.
func Docs(w io.Writer, kinds []probes.Kind) error {
	p := markdown{w: w}
	c := Default(kinds)
	p.printf("%s", docsBegin)
	p.row("Key", "Type", "Default", "Allowed", "Variable", "Flag", "Meaning")
	p.row("---", "---", "---", "---", "---", "---", "---")
	for _, k := range c.keys() {
		if strings.HasPrefix(k.Path, "checks[") {
			continue
		}
		p.row(code(k.Path), k.Type, p.standard(k.Setting, k.Default), k.Allowed, code(k.variable), code("--"+k.flag), p.meaning(k.Setting))
	}
	p.checks()
	for _, kind := range kinds {
		p.kind(kind)
	}
	return p.err
}

const docsBegin = `The agent reads, the later over the earlier: its defaults, the file that ` + "`--config`" + ` or ` + "`FETTLE_CONFIG`" + ` names (else
` + "`" + DefaultPath + "`" + ` if there is one), environment variables, and flags. An empty variable says nothing. A list in a variable
has commas between its items, or is YAML in brackets: ` + "`[a, \"b, c\"]`" + `. A variable that starts with ` + "`FETTLE_`" + ` and is not
listed here is a fault; those that a kubelet makes for Services are passed over.

` + "`nodeagent config validate FILE`" + ` lists everything that is wrong with a file, without FILE also what is wrong with the
environment; ` + "`nodeagent config print`" + ` shows the values in force and where each came from. The systemd unit takes variables
from ` + "`/etc/fettle/nodeagent.env`" + `.

A running agent takes a new file up by itself, also from a ConfigMap, and on SIGHUP. It takes it whole or not at all: while
the file is not valid, is empty, or is gone, the last valid one stays in force and the agent's own check says what is wrong. Keys
marked *restart* take effect at the next start. The last valid file is kept in the state folder, so that an agent that is
started with a file that is not valid runs with that one, or with the defaults when there is none, and says so; of the
environment and the flags it leaves out the values that are at fault. It looks for that copy in the state folder that flag or
variable name, then the file as far as it can be read, then the default. All other commands refuse a configuration that is
not valid.

## The agent

`

func (p *markdown) checks() {
	p.printf(`
## Checks

` + "`checks`" + ` is a list. An entry that has the name of a built-in check sets that check; the others keep their defaults. An
entry with a ` + "`kind`" + ` that is a template makes a check of its own name.

` + "```yaml" + `
checks:
- name: root-filesystem
  interval: 2m
- name: cni-config
  disabled: true
` + "```" + `

A variable of a check has the check's name in it, in capitals and with ` + "`_`" + ` for ` + "`-`" + `; NAME below. Variables set checks that the file
or the agent has; they do not make any. These keys are those of every check:

`)
	p.row("Key", "Type", "Default", "Allowed", "Variable", "Meaning")
	p.row("---", "---", "---", "---", "---", "---")
	every := newCheck(probes.Define(probes.Kind{}, func() struct{} { return struct{}{} }, func(probes.Env, struct{}) probes.Probe { return nil }), "NAME")
	for _, s := range strict.Settings(&every.Settings) {
		variable := code(variableOf("checks[NAME]." + s.Path))
		if s.Path == "name" || s.Path == "kind" {
			variable = "none"
		}
		p.row(code(s.Path), s.Type, p.standard(s, s.Default), s.Allowed, variable, p.meaning(s))
	}
}

// kind writes a kind's options, and which keys of every check have defaults of the kind.
func (p *markdown) kind(k probes.Kind) {
	name := k.Name
	p.printf("\n### %s\n\n%s", k.Name, k.Description)
	if k.Template {
		name = "NAME"
		p.printf(" A template: `- {name: NAME, kind: %s, …}` makes a check.", k.Name)
	}
	check := newCheck(k, name)
	at := checkPath(name)
	var defaults []string
	for _, s := range strict.Settings(&check.Settings) {
		if s.Default != s.Written() && s.Written() != "" && s.Path != "name" && s.Path != "kind" && s.Path != "staleAfter" {
			defaults = append(defaults, s.Path+" "+code(s.Written()))
		}
	}
	p.printf(" Defaults: %s.\n\n", strings.Join(defaults, ", "))
	options := strict.SettingsAt(at, check.Options)
	if len(options) == 0 {
		p.printf("It has no options of its own.\n")
		return
	}
	p.row("Key", "Type", "Default", "Allowed", "Variable", "Meaning")
	p.row("---", "---", "---", "---", "---", "---")
	for _, s := range options {
		p.row(code(strings.TrimPrefix(s.Path, at+".")), s.Type, p.standard(s, s.Default), s.Allowed, code(variableOf(s.Path)), p.meaning(s))
	}
}

// markdown keeps the first error.
type markdown struct {
	w   io.Writer
	err error
}

func (p *markdown) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *markdown) row(cells ...string) {
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	p.printf("| %s |\n", strings.Join(cells, " | "))
}

// standard is a default; words for one are not code.
func (p *markdown) standard(s strict.Setting, value string) string {
	switch {
	case value == "":
		return "none"
	case value != s.Written():
		return value
	default:
		return code(value)
	}
}

func (p *markdown) meaning(s strict.Setting) string {
	if s.Restart {
		return s.Doc + " (*restart*)"
	}
	if s.Secret {
		return s.Doc + " (*secret*: not shown)"
	}
	return s.Doc
}

func code(text string) string { return "`" + text + "`" }
