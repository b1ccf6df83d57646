package services_test

import (
	"math/rand/v2"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monoplane.dev/nodeagent/network/services"
)

// damage does to the table what somebody could, or nothing.
func damage(conn *nftables.Conn, r *rand.Rand) error {
	table := &nftables.Table{Name: services.TableName, Family: nftables.TableFamilyINet}
	all, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return err
	}
	var own []*nftables.Chain
	for _, c := range all {
		if c.Table.Name == table.Name && (strings.Contains(c.Name, "/") || r.IntN(3) == 0) {
			own = append(own, c)
		}
	}
	switch n := r.IntN(4); {
	case n == 0:
		conn.DelTable(table)
	case n == 1 && len(own) > 0:
		conn.FlushChain(&nftables.Chain{Table: table, Name: own[r.IntN(len(own))].Name})
	case n == 2 && len(own) > 0:
		conn.InsertRule(&nftables.Rule{
			Table: table, Chain: &nftables.Chain{Name: own[r.IntN(len(own))].Name},
			Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}},
		})
	case n == 3:
		conn.FlushSet(&nftables.Set{Table: table, Name: []string{"services4", "clusterips6", "hairpins4"}[r.IntN(3)]})
	}
	return nil
}
