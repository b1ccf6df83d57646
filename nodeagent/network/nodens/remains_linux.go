package nodens

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
)

// tableOfCluster matches what hostTable returns.
var tableOfCluster = regexp.MustCompile(`^monoplane-([0-9a-f]{10})$`)

// mostRaces is how often the rules of the machine may change while remains are looked for, before that is given up.
const mostRaces = 10

// clearRemains takes away the tables of clusters of this machine whose node namespaces are no more: those were killed,
// and nobody came back. Such a table would drop what comes from the pods of another cluster, and lead clients of the
// machine's ports into the void.
//
// The proof is the machine's link to the namespace: the kernel takes it away with the namespace, which lives as long
// as a helper does. Neither files nor processes are asked: they can be of another mount or PID namespace. A cluster
// that starts makes its link first, and its table after that. So the kernel is told to delete the table only if nobody
// has changed rules since it was seen to have no link. A living cluster whose link somebody has taken away has no use
// for its table either, and makes both anew at its next Verify.
//
// What cannot be taken away is tried again by the next Verify.
func clearRemains(cfg *Config) {
	for range mostRaces {
		err := clearOnce(cfg)
		if errors.Is(err, unix.ERESTART) {
			continue
		}
		if err != nil {
			cfg.Log.Warn("rules that clusters which were killed have left cannot be taken away", "error", err)
		}
		return
	}
}

func clearOnce(cfg *Config) error {
	generation, err := nft.Generation(dialNetfilter)
	if err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables of the machine: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("the machine's tables of nftables: %w", err)
	}
	for _, t := range tables {
		of := tableOfCluster.FindStringSubmatch(t.Name)
		if of == nil || t.Name == hostTable(cfg.Cluster) {
			continue
		}
		link, err := findLink(linkPrefix + of[1])
		if err != nil {
			return err
		}
		if link != nil {
			continue
		}
		if err := remains(t.Name).takeAway(generation); err != nil {
			return err
		}
		generation++
		cfg.Log.Warn("the rules of a cluster that was killed are taken away", "table", t.Name)
	}
	return nil
}

// remains is the table of a cluster of which nothing is known but its name.
func remains(name string) *machineTable {
	return machineTableOf(&Config{Log: slog.New(slog.DiscardHandler), PodRanges: []netip.Prefix{
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}}, name)
}

// takeAway deletes the table, if the rules of the machine are of a generation; of any if that is 0. What it leads, of
// whatever families that is, must not go on to where pods were: others may come to be there.
func (t *machineTable) takeAway(generation uint32) error {
	had, _ := t.read() // Who may not read it has made none.
	b, err := nft.NewBatch(t.netfilter, nft.MostBytes)
	if err != nil {
		return err
	}
	defer b.Close()
	if generation != 0 {
		b.OnlyOf(generation)
	}
	b.Conn.AddTable(t.table) // One that is not there cannot be deleted.
	b.Conn.DelTable(t.table)
	err = b.End()
	if err == nil {
		_, err = b.Commit()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.title, err)
	}
	t.forget(had.ports)
	return nil
}
