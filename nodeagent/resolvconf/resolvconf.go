// Package resolvconf reads how a machine resolves names, in the form of resolv.conf(5), for pods to do the same.
//
// Parse never fails: a line that it does not know is left out, as resolvers do. Read looks behind the resolver that
// systemd runs on the loopback address of a machine, which processes in other network namespaces cannot reach.
package resolvconf

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Config is what a resolver is told.
type Config struct {
	// Servers are addresses of name servers, Searches domains to look in, Options such as "ndots:5". Each is in the
	// order of the file; of options with the same name only the last is there.
	Servers, Searches, Options []string
}

const (
	// System is where machines have the file.
	System = "/etc/resolv.conf"
	// Upstream is where systemd-resolved writes the servers that it asks itself.
	Upstream = "/run/systemd/resolve/resolv.conf"

	// stub is the address at which systemd-resolved answers.
	stub = "127.0.0.53"
	// most is how much of a file is read.
	most = 10 << 20
)

// Read returns what the file at path says, and what the one at upstream says where path names nothing but the resolver
// of systemd. A file that is not there says nothing.
func Read(path, upstream string) (Config, error) {
	c, err := read(path)
	if err != nil || len(c.Servers) != 1 || c.Servers[0] != stub {
		return c, err
	}
	real, err := read(upstream)
	if err != nil || len(real.Servers) == 0 {
		return c, err
	}
	return real, nil
}

func read(path string) (Config, error) {
	f, err := os.Open(path) //nolint:gosec // the agent's own configuration
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most))
	return Parse(string(data)), err
}

// Parse reads the text of such a file. Name servers add up, a later list of search domains replaces an earlier one.
func Parse(text string) Config {
	var c Config
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) > 1 {
				c.Servers = append(c.Servers, words[1])
			}
		case "search":
			c.Searches = nil
			for _, domain := range words[1:] {
				if domain != "." { // the root, in which every resolver looks
					c.Searches = append(c.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range words[1:] {
				c.Options = SetOption(c.Options, option)
			}
		}
	}
	return c
}

// SetOption returns the options with one more, which replaces one of the same name, such as "ndots:2" for "ndots:5".
// It may overwrite the list.
func SetOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	i := slices.IndexFunc(options, func(o string) bool {
		have, _, _ := strings.Cut(o, ":")
		return have == name
	})
	if i < 0 {
		return append(options, option)
	}
	options[i] = option
	return options
}
