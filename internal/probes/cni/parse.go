package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/fettle-dev/fettle/internal/health"
)

// network is what a configuration file says, as far as the check needs it.
type network struct {
	name, file string
	plugins    []string // the binaries it needs, in the order in which it names them
}

// load reads and parses a configuration file as the runtime would.
func (l look) load(file string) (network, *health.Result) {
	content, unread := l.read(file)
	if unread != nil {
		return network{}, unread
	}
	list, err := parse(file, content)
	if err != nil {
		return network{}, fault(ConfigInvalid, "%s: %v", file, err)
	}
	if !list.LoadOnlyInlinedPlugins && path.Ext(file) == ".conflist" {
		more, unread := l.loadFolder(path.Join(path.Dir(file), list.Name))
		if unread != nil {
			return network{}, unread
		}
		list.Plugins = append(list.Plugins, more...)
	}
	if len(list.Plugins) == 0 {
		return network{}, fault(ConfigInvalid, "%s: no plugins", file)
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return network{}, fault(ConfigInvalid, "%s: the network's name %q is not allowed", file, list.Name)
	}
	n := network{name: list.Name, file: file}
	for _, p := range list.Plugins {
		needed, err := binaries(p)
		if err != nil {
			return network{}, fault(ConfigInvalid, "%s: %v", file, err)
		}
		n.plugins = append(n.plugins, needed...)
	}
	return n, nil
}

// parse turns a file's content into a list of plugins; a *.conf or *.json file holds a single one.
func parse(file string, content []byte) (*libcni.NetworkConfigList, error) {
	if len(strings.TrimSpace(string(content))) == 0 {
		return nil, errors.New("the file is empty")
	}
	if path.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromBytes(content)
	}
	single, err := libcni.NetworkPluginConfFromBytes(content)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(single) //nolint:staticcheck // deprecated, and still what runtimes do with such files
}

// loadFolder reads the plugins that stand beside a list in files of their own.
func (l look) loadFolder(dir string) ([]*libcni.PluginConfig, *health.Result) {
	entries, err := l.host.ReadDir(dir)
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, fault(ConfigUnreadable, "%v", err)
	}
	var plugins []*libcni.PluginConfig
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".conf" {
			continue
		}
		file := path.Join(dir, e.Name())
		content, unread := l.read(file)
		if unread != nil {
			return nil, unread
		}
		plugin, err := libcni.NetworkPluginConfFromBytes(content)
		if err != nil {
			return nil, fault(ConfigInvalid, "%s: %v", file, err)
		}
		plugins = append(plugins, plugin)
	}
	return plugins, nil
}

// binaries lists what a plugin's configuration needs in the plugin folders: the plugin, its address management, and what
// it hands its work on to.
func binaries(p *libcni.PluginConfig) ([]string, error) {
	var delegating struct {
		Delegate struct {
			Type string `json:"type"`
		} `json:"delegate"`
	}
	// A delegate of another shape is between the plugin and its authors.
	_ = json.Unmarshal(p.Bytes, &delegating)
	needed := []string{p.Network.Type, p.Network.IPAM.Type, delegating.Delegate.Type}
	if p.Network.Type == "flannel" {
		// The flannel plugin sets up nothing itself. Where nothing else is configured it calls bridge with host-local.
		needed = append(needed, fallback(delegating.Delegate.Type, "bridge"), fallback(p.Network.IPAM.Type, "host-local"))
	}
	var names []string
	for _, name := range needed {
		switch {
		case name == "":
		case strings.ContainsRune(name, '/'), name == ".", name == "..":
			return nil, fmt.Errorf("the plugin type %q is not the name of a file", name)
		default:
			names = append(names, name)
		}
	}
	return names, nil
}

func fallback(configured, otherwise string) string {
	if configured != "" {
		return ""
	}
	return otherwise
}
