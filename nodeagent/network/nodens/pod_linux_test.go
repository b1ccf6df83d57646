package nodens_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens"
)

// pod is a process in the network namespace of a pod, which does what the test tells it.
type pod struct {
	t  *testing.T
	mu sync.Mutex

	in  io.WriteCloser
	out *bufio.Reader

	netns *os.File
}

// order is one thing that the process is told to do.
type order struct {
	Serve, Ask string // A network: "tcp", "udp".
	Addr       string
	Take, On   string // An address for a link.
	Rate       string // A link, of which the bound in bytes a second is asked.
	Break      string // What of eth0 to damage.
	Spoof      string // An address from which to send a packet of UDP.
	Heard      bool   // From whom packets of UDP have come.
	Hold       int    // How many connections to Addr to hold open, instead of those that were held before.
	By         string // By which network; "tcp" if empty.
	Talk       bool   // Say something on what is held of UDP, and wait for the answer.
	Drop       bool   // Close what is held.
	Finish     bool   // Say all that is to be said on what is held, and wait for the answers.
	Datagram   int    // Send one of so many bytes to Addr until it is answered.
	Whole      bool   // Not in fragments.
	Unlimited  string // An address whose packets may be as large as eth0 takes, whatever the default route says.
	Bytes      int64
	Facts      bool
}

// answer says what came of it.
type answer struct {
	Text, Err string
	Took      time.Duration
	Links     map[string]link
}

type link struct {
	MTU       int
	Segment   uint32 // Of IPv4; 0 where the kernel has none.
	Addresses []string
}

// patience is how long tests wait for what must come: machines that are emulated take tens of seconds for what takes
// others a few milliseconds.
const patience = 2 * time.Minute

// enter starts a process in a network namespace; user is the user namespace to be entered before, or nil.
func enter(t *testing.T, user, netns *os.File) *pod {
	t.Helper()
	args := []string{"--net=/proc/self/fd/3"}
	files := []*os.File{netns}
	if user != nil {
		args = append(args, "--user=/proc/self/fd/4", "--preserve-credentials")
		files = append(files, user)
	}
	cmd := exec.Command("nsenter", append(args, "--", os.Args[0])...)
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), "NODENS_TEST=pod")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &pod{t: t, in: in, out: bufio.NewReader(out), netns: netns}
}

func (p *pod) try(o order) answer {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	check(p.t, json.NewEncoder(p.in).Encode(o))
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("the pod's process does not answer: %v", err)
	}
	var a answer
	check(p.t, json.Unmarshal(line, &a))
	return a
}

func (p *pod) do(o order) answer {
	p.t.Helper()
	a := p.try(o)
	if a.Err != "" {
		p.t.Fatalf("%+v: %s", o, a.Err)
	}
	p.t.Logf("%+v: %s", o, a.Took)
	return a
}

// clientIn returns the address of its client that a server of pods has answered with.
func clientIn(answer string) string {
	from, _, _ := strings.Cut(answer, " ")
	at, _ := netip.ParseAddrPort(from)
	return at.Addr().String()
}

// servesAll has a pod serve its clients.
func servesAll(p *pod) *pod {
	p.t.Helper()
	p.do(order{Serve: "tcp", Addr: ":80"})
	p.do(order{Serve: "udp", Addr: ":80"})
	return p
}

// podMain is the process.
func podMain() {
	in := json.NewDecoder(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return
		}
		var a answer
		var err error
		begun := time.Now()
		switch {
		case o.Serve != "":
			a.Text, err = serve(o.Serve, o.Addr)
		case o.Ask != "":
			a.Text, err = ask(o.Ask, o.Addr, o.Bytes)
		case o.Take != "":
			err = take(o.Take, o.On)
		case o.Rate != "":
			a.Text, err = rate(o.Rate)
		case o.Break != "":
			err = damage(o.Break)
		case o.Spoof != "":
			err = spoof(o.Spoof, o.Addr)
		case o.Heard:
			heard.Lock()
			a.Text = heard.from
			heard.Unlock()
		case o.Hold > 0, o.Drop:
			err = hold(cmp.Or(o.By, "tcp"), o.Hold, o.Addr)
		case o.Talk:
			a.Text, err = converse(held[0], 0)
		case o.Finish:
			a.Text, err = finish()
		case o.Datagram > 0:
			a.Text, err = datagram(o.Addr, o.Datagram, o.Whole)
		case o.Unlimited != "":
			err = unlimited(o.Unlimited)
		case o.Facts:
			a.Links, err = facts()
		}
		a.Took = time.Since(begun)
		if err != nil {
			a.Err = err.Error()
		}
		_ = out.Encode(a)
	}
}

// heard is from whom packets of UDP have come to this process.
var heard struct {
	sync.Mutex
	from string
}

// held are connections that this process does nothing with.
var held []net.Conn

func hold(network string, n int, addr string) error {
	for _, c := range held {
		c.Close()
	}
	held = nil
	for range n {
		c, err := net.DialTimeout(network, addr, patience)
		if err != nil {
			return err
		}
		held = append(held, c)
	}
	return nil
}

// finish has a conversation on each of the connections that are held, and returns what was said last.
func finish() (said string, err error) {
	for _, c := range held {
		if said, err = converse(c, 1<<20); err != nil {
			return "", err
		}
	}
	return said, hold("", 0, "")
}

// serve answers every client with the address that it has for the server, the count of bytes that it has sent, and
// their sum. It returns where.
func serve(network, addr string) (string, error) {
	if network == "udp" {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return "", err
		}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				heard.Lock()
				heard.from += from.String() + " "
				heard.Unlock()
				_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s", from, buf[:n]), from)
			}
		}()
		return c.LocalAddr().String(), nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				sum := crc32.NewIEEE()
				n, _ := io.Copy(sum, c)
				fmt.Fprintf(c, "%s %d %08x", c.RemoteAddr(), n, sum.Sum32())
			}()
		}
	}()
	return l.Addr().String(), nil
}

// served is serve where that is possible.
func served(t *testing.T, network, host string) string {
	t.Helper()
	at, err := serve(network, net.JoinHostPort(host, "0"))
	check(t, err)
	return at
}

// ask sends bytes to a server and returns its answer.
func ask(network, addr string, bytes int64) (string, error) {
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return converse(c, bytes)
}

// converse sends bytes and returns the answer without the sum, which must be right.
func converse(c net.Conn, bytes int64) (string, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	if c, ok := c.(*net.UDPConn); ok {
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", err
		}
		buf := make([]byte, 1024)
		n, err := c.Read(buf)
		return string(buf[:n]), err
	}
	block := make([]byte, 1<<20)
	content := rand.NewChaCha8([32]byte{1})
	sum := crc32.NewIEEE()
	for bytes > 0 {
		_, _ = content.Read(block)
		piece := block[:min(bytes, int64(len(block)))]
		_, _ = sum.Write(piece)
		n, err := c.Write(piece)
		if err != nil {
			return "", err
		}
		bytes -= int64(n)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if err == nil && len(b) == 0 {
		err = io.ErrUnexpectedEOF
	}
	// Servers that are not those of serve send no sum.
	answer, got, summed := cutLast(string(b))
	if want := fmt.Sprintf("%08x", sum.Sum32()); summed && got != want {
		err = fmt.Errorf("what was sent arrived changed: its sum is %s, not %s", got, want)
	}
	return answer, err
}

// cutLast takes the third word off an answer, if it has three.
func cutLast(answer string) (rest, last string, found bool) {
	words := strings.Fields(answer)
	if len(words) != 3 {
		return answer, "", false
	}
	return words[0] + " " + words[1], words[2], true
}

func take(addr, on string) error {
	link, err := netlink.LinkByName(on)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipnet(addr), Flags: unix.IFA_F_NODAD}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// rate returns the bound of what is sent over a link.
func rate(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", err
	}
	all, err := netlink.QdiscList(link)
	for _, q := range all {
		if tbf, ok := q.(*netlink.Tbf); ok {
			return fmt.Sprint(tbf.Rate), nil
		}
	}
	return "", err
}

// damage takes away a part of the pod's connection.
func damage(what string) error {
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	switch what {
	case "alias":
		return netlink.LinkSetAlias(eth0, "a pod of before")
	case "address":
		return netlink.AddrDel(eth0, &netlink.Addr{IPNet: ipnet("10.244.0.5/32")})
	case "route":
		return netlink.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: ipnet("0.0.0.0/0")})
	case "down":
		return netlink.LinkSetDown(eth0)
	default:
		return netlink.LinkDel(eth0)
	}
}

// spoof sends a packet of UDP from an address, which may have a port.
func spoof(from, to string) error {
	local := net.UDPAddr{IP: net.ParseIP(from)}
	if at, err := netip.ParseAddrPort(from); err == nil {
		local = *net.UDPAddrFromAddrPort(at)
	}
	d := net.Dialer{LocalAddr: &local}
	c, err := d.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	return err
}

// datagram sends one until its answer comes, or it is known to be too long, and returns who said it last: "route" or
// "network". The first one that is too long for a link on its way is lost.
func datagram(addr string, size int, whole bool) (by string, err error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	how := unix.IP_PMTUDISC_WANT
	if whole {
		how = unix.IP_PMTUDISC_DO
	}
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
		if c.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
		}
		failed = unix.SetsockoptInt(int(fd), level, option, how)
	})
	if err := cmp.Or(err, failed); err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(patience); ; {
		by = "route"
		_, err := c.Write(make([]byte, size))
		if err == nil {
			by = "network"
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, err = c.Read(buf)
		}
		tooLong := errors.Is(err, unix.EMSGSIZE)
		switch {
		case tooLong && whole:
			return by, unix.EMSGSIZE
		case !tooLong && !errors.Is(err, os.ErrDeadlineExceeded), time.Now().After(end):
			return by, err
		}
	}
}

func unlimited(to string) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	gateway := nodens.Gateway4
	at := netip.MustParseAddr(to)
	if at.Is6() {
		gateway = nodens.Gateway6
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(),
		Dst: ipnet(netip.PrefixFrom(at, at.BitLen()).String())})
}

func facts() (map[string]link, error) {
	all, err := net.Interfaces()
	links := map[string]link{}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		l := link{MTU: i.MTU}
		at, err := netlink.LinkByIndex(i.Index)
		if err != nil {
			return nil, err
		}
		l.Segment = at.Attrs().GSOIPv4MaxSize
		for _, a := range addrs {
			if !strings.HasPrefix(a.String(), "fe80:") {
				l.Addresses = append(l.Addresses, a.String())
			}
		}
		links[i.Name] = l
	}
	return links, err
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
