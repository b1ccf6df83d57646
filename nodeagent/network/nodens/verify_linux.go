package nodens

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nft"
)

// seen is what Verify compares with.
type seen struct {
	// inside are the rules of the node namespace.
	inside ruleset
	// others are the rules of somebody else on the machine. They were looked at when somebody had changed rules so often
	// as judged says.
	others foreign
	judged int
	// said is which reasons the log has for leading neither clients outside nor the machine's own.
	said [2]string
	// free says that the kernel could be the way out again when that was looked at last.
	free bool
}

// ruleset is what the nftables of a network namespace were when they were looked at.
type ruleset struct {
	generation uint32 // The kernel counts it up with each change, whoever makes it.
	table      string // Our table, by the kernel's numbers of its rules; empty if it is not there.
}

// lookInside reads the rules of the node namespace again if they have changed since last.
func (n *Namespace) lookInside(last ruleset) (now ruleset, err error) {
	// First, so that a change meanwhile is seen by the next look.
	if now.generation, err = nft.Generation(n.Netfilter); err != nil {
		return ruleset{}, err
	}
	if now.generation == last.generation && last.table != "" {
		return last, nil
	}
	conn, err := n.NFTables()
	if err != nil {
		return ruleset{}, err
	}
	now.table, err = rulesIn(conn, "monoplane")
	return now, err
}

// rulesIn returns the rules of a table, by the kernel's numbers of them; empty if it is not there.
func rulesIn(conn *nftables.Conn, table string) (string, error) {
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return "", fmt.Errorf("the chains of the table %s: %w", table, err)
	}
	var text strings.Builder
	for _, c := range chains {
		if c.Table.Name != table {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return "", fmt.Errorf("the rules of the table %s: %w", table, err)
		}
		fmt.Fprint(&text, c.Name)
		for _, r := range rules {
			fmt.Fprint(&text, " ", r.Handle)
		}
		fmt.Fprintln(&text)
	}
	return text.String(), nil
}

// remember looks at the rules that have just been made. What cannot be read now is found changed by the next Verify.
func (n *Namespace) remember() {
	var err error
	if n.seen.inside, err = n.lookInside(ruleset{}); err != nil {
		n.cfg.Log.Warn("the rules of the pod network cannot be read", "error", err)
	}
}

// Verify looks at what Open has made: whether it is there still, and whether the machine still forwards, or does by
// now. Others change that at any time: a firewall that is started later, or reloads its rules and takes ours away with
// them, a manager of networks that removes addresses and routes which it does not know. What is missing is put right,
// and the way out becomes the one that is possible. Where all is as it was, nothing is changed, and little is read.
//
// From the kernel to the process the way out changes at once. Back it does when the machine has been found to forward
// twice, as a firewall that is restarted is gone only for a moment; connections that go through the process stay
// there.
func (n *Namespace) Verify(ctx context.Context) error {
	n.verifying.Lock()
	defer n.verifying.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.work, cancel)()
	if n.work.Err() != nil {
		return nil // It is closed, and may be removed.
	}
	inside, err := n.lookInside(n.seen.inside)
	if err != nil {
		return err
	}
	var wrong []string
	if inside.table == "" || inside.table != n.seen.inside.table {
		wrong = append(wrong, "the table monoplane of the node namespace")
	} else {
		n.seen.inside = inside
	}
	if intact, _, err := n.inside.intact(); err != nil {
		return err
	} else if !intact {
		wrong = append(wrong, n.inside.title)
	}
	why := n.status.Why
	if !n.cfg.Rootless {
		clearRemains(&n.cfg)
		more, err := n.missing()
		if err != nil {
			return err
		}
		if wrong = append(wrong, more...); len(wrong) == 0 {
			if why, err = n.against(); err != nil {
				return err
			}
		}
	}
	if len(wrong) > 0 {
		n.cfg.Log.Warn("somebody else has changed the pod network, which is put right", "missing", wrong)
		return n.repair(ctx)
	}
	return n.leave(ctx, why)
}

// missing returns what the machine's side lacks.
func (n *Namespace) missing() (wrong []string, err error) {
	name := hostLink(n.cfg.Cluster)
	link, err := findLink(name)
	if err != nil {
		return nil, err
	}
	if link == nil || link.Attrs().Alias != aliasFor(n.inode) || link.Attrs().Flags&net.FlagUp == 0 {
		return []string{"the link " + name}, nil
	}
	addresses, err := netlink.AddrList(link, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("the addresses of the link %s: %w", name, err)
	}
	routes, err := netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{LinkIndex: link.Attrs().Index},
		netlink.RT_FILTER_OIF)
	if err != nil {
		return nil, fmt.Errorf("the routes over the link %s: %w", name, err)
	}
	for _, r := range n.cfg.PodRanges {
		_, own := NodeAddresses(r)
		if !slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
			has, _ := prefix(a.IPNet)
			return has == netip.PrefixFrom(own, own.BitLen())
		}) {
			wrong = append(wrong, "the address "+own.String())
		}
		for _, want := range routesOver(&n.cfg, link, r) {
			to, _ := prefix(want.Dst)
			if slices.ContainsFunc(routes, func(r netlink.Route) bool { has, _ := prefix(r.Dst); return has == to }) {
				continue
			}
			if taken, err := takenBy(want); err != nil {
				return nil, err
			} else if taken == "" {
				wrong = append(wrong, "the route "+to.String())
			}
		}
	}
	intact, others, err := n.machine.intact()
	if err != nil {
		return nil, err
	}
	if !intact {
		wrong = append(wrong, n.machine.title)
	}
	if others != n.seen.judged {
		if n.seen.others, err = othersRules(&n.cfg); err != nil {
			return nil, err
		}
		n.seen.judged = others
	}
	return wrong, nil
}

// against returns what is against the kernel's way out, by the rules that have been looked at; empty if nothing is.
func (n *Namespace) against() (why string, err error) {
	if why, err = settings(&n.cfg); why != "" || err != nil {
		return why, err
	}
	return n.seen.others.forward, nil
}

// repair does again what Open does.
func (n *Namespace) repair(ctx context.Context) error {
	dir, lock, err := lockDir(ctx, n.cfg.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	defer lock.Close()
	if !n.cfg.Rootless {
		if err := n.join(ctx); err != nil {
			return err
		}
	}
	return n.setUp(ctx)
}

// leave makes the way out the one that is possible, and that of clients of the machine's ports.
func (n *Namespace) leave(ctx context.Context, why string) error {
	if err := n.change(ctx, why); err != nil {
		return err
	}
	return n.lead()
}

// change makes the way out the one that is possible.
func (n *Namespace) change(ctx context.Context, why string) error {
	had := n.status.Why
	free := n.seen.free
	n.seen.free = why == ""
	switch {
	case why == had || why == "" && !free:
		return nil
	case why == "":
		n.cfg.Log.Warn("the machine forwards by now: pods reach out through the kernel")
	default:
		n.cfg.Log.Warn("pods reach out through this process", "why", why)
	}
	if err := n.leaveBy(ctx, why); err != nil {
		return err
	}
	if why != "" && had != "" {
		return nil // For another reason than before.
	}
	return n.setUp(ctx)
}

// lead has the kernel lead clients of the machine's ports where it is the way out of pods, too. Rules of others for
// what comes to the machine's own ports would not see those clients any more, rules for what it forwards would, and
// rules for what it sends would see its own clients on another link: where there are such, the process serves these.
func (n *Namespace) lead() error {
	if n.machine == nil {
		return nil
	}
	links, err := readLinks(&n.cfg)
	if err != nil {
		return err
	}
	var from [2][]uint32
	others := n.seen.others
	why := [2]string{cmp.Or(others.input, others.through), cmp.Or(others.input, others.output)}
	if n.Status().Egress == EgressMasquerade {
		if why[1] == "" {
			if err := fromLoopback(&n.cfg); err != nil {
				why[1] = err.Error()
			}
		}
		for _, r := range n.cfg.PodRanges {
			i := nft.Index(r.Addr().Is6())
			if why[0] == "" {
				from[i] = links.forwarding[i]
			}
			if why[1] == "" && links.loopback != 0 {
				from[i] = append(from[i], links.loopback)
			}
		}
	}
	for i, who := range []string{"clients outside", "the machine's own programs"} {
		switch {
		case why[i] == n.seen.said[i]:
		case why[i] != "":
			n.cfg.Log.Info(who+" reach the machine's ports through this process", "why", why[i])
		default:
			n.cfg.Log.Info(who + " reach the machine's ports on the pods' way out")
		}
	}
	n.seen.said = why
	n.machine.leadFrom(from, links.all)
	return nil
}
