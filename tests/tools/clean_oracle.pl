#!/usr/bin/perl
# An independent implementation of the cleaning rules, for comparison with prepare:
#   clean_oracle.pl MIN MAX RATIO SOURCE TARGET OUT-SOURCE OUT-TARGET OUT-LINES
# Writes the kept pairs, with squeezed white space, and the numbers of the kept lines.
use strict;
use warnings;
my ($min, $max, $ratio, @path) = @ARGV;
my @fh;
for my $i (0 .. 4) {
  open($fh[$i], ($i < 2 ? '<' : '>') . ':encoding(UTF-8)', $path[$i]) or die "$path[$i]: $!";
}

# Returns the number of words and the length of the longest one, after '|' is removed.
sub words {
  my $text = shift;
  $text =~ tr/|//d;
  my @word = split ' ', $text;
  my $longest = 0;
  for (@word) { $longest = length if length > $longest }
  return (scalar @word, $longest);
}

while (defined(my $source = readline $fh[0])) {
  my $target = readline $fh[1];
  for ($source, $target) { s/\s+/ /g; s/^ //; s/ $// }
  my ($s, $sl) = words($source);
  my ($t, $tl) = words($target);
  next if $s < 1 || $t < 1 || $s < $min || $t < $min || $s > $max || $t > $max;
  next if $s > $ratio * $t || $t > $ratio * $s || $sl > 1000 || $tl > 1000;
  print { $fh[2] } "$source\n";
  print { $fh[3] } "$target\n";
  print { $fh[4] } $fh[0]->input_line_number, "\n";
}
