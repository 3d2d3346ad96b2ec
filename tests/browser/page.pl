#!/usr/bin/perl
# Checks of the board's page in a browser, called by board.bats: page.pl CHECK ADDRESS [ARGUMENT].
# Ends with 0 if everything holds, otherwise with what does not.
use strict;
use warnings;
use File::Basename;
use File::Path 'remove_tree';
use File::Temp 'tempdir';
use lib dirname(__FILE__);
require 'browser.pm';

my ($check, $address, @arguments) = @ARGV;
my $directory = tempdir(CLEANUP => 1);
my $browser = Browser->start("$directory/profile", $ENV{CHROMIUM});
my @views = qw(curves speed hosts samples options events);

# In the page: the run of a name, and the steps of its curve.
my $run = q{(async name => [...(await import('/store.js')).runs.values()].find(run => run.name === name))};
sub steps { return "($run('$_[0]')).then(run => run?.series.train?.step || [])" }
my $label = q{document.querySelector('#curves .plot')?.getAttribute('aria-label') || ''};

sub wait_until { $browser->wait_for(@_) }

# Fails if the page had an error, broke its security policy, or asked another machine.
sub check_clean {
  my ($origin) = $address =~ m{^(http://[^/]+)/};
  die "console: $_\n" for @{ $browser->{console} };
  for my $url (@{ $browser->{requests} }) {
    die "the page asked for $url\n" unless $url =~ m{^\Q$origin\E/} || $url =~ /^(data|about):/;
  }
}

sub open_page {
  my ($width, $height, $query) = @_;
  $browser->size($width, $height);
  $browser->open($address . ($query // ''));
  wait_until(q{document.querySelectorAll('#run-list li').length > 0}, 'runs are listed');
}

my %checks = (
  live => sub {
    my ($dir) = @arguments;
    open_page(1280, 900);
    wait_until(q{document.querySelectorAll('#curves canvas').length > 0}, 'a chart is drawn');
    my $grown = steps('live') . '.then(steps => steps[steps.length - 1])';
    wait_until(steps('live') . '.then(steps => steps.length > 0)', 'there is a curve');
    my $before = $browser->value($grown);
    $browser->value(q{window.canvas = document.querySelector('#curves canvas'); 1});
    wait_until("$grown.then(step => step > $before + 5)", 'the curve grows');
    $browser->value(q{window.canvas.isConnected}) or die "the chart was made anew, which blinks\n";
    # A copy of the run appears by itself; both are in one chart.
    system('cp', '-r', "$dir/live", "$dir/second") == 0 or die "cp: $?\n";
    wait_until("($label).includes('live') && ($label).includes('second')", 'two runs are in one chart');
    remove_tree("$dir/second");
    wait_until(q{[...document.querySelectorAll('#run-list li')].some(item => /second.*gone/s.test(item.textContent))},
      'the deleted run is shown as gone');
    die "the curve of the deleted run is no longer there\n" unless $browser->value("($label).includes('second')");
    $before = $browser->value($grown);
    wait_until("$grown.then(step => step > $before)", 'the other run still grows');
  },

  zoom => sub {
    open_page(1280, 900);
    wait_until("($run('long')).then(run => run?.series.train?.exact && run.series.train.each > 1)", 'the curve is exact');
    wait_until(q{document.querySelectorAll('#curves canvas').length > 0}, 'a chart is drawn');
    my $box = $browser->value(q{(({x, y, width, height}) => [x, y, width, height])(document.querySelector('#curves .plot').getBoundingClientRect())});
    my ($x, $y, $width, $height) = @$box;
    $browser->drag($x + $width * 0.5, $y + $height * 0.5, $x + $width * 0.55, $y + $height * 0.5);
    wait_until(q{!document.getElementById('reset').disabled}, 'the chart is zoomed');
    # The part of the file is read again, record by record.
    my $zoomed = "($run('long')).then(run => run.zoomed.train)";
    wait_until("$zoomed.then(zoom => zoom && zoom.each < 30 && zoom.step.length > 100)", 'details are there');
    $browser->value(q{document.querySelector('#curves .plot').focus(); 1});
    my $span = "$zoomed.then(zoom => zoom ? zoom.step[zoom.step.length - 1] - zoom.step[0] : 0)";
    my $before = $browser->value($span);
    $browser->press('+');
    wait_until("$span.then(span => span > 0 && span < $before * 0.7)", 'the key + zooms in');
    $browser->press('0');
    wait_until(q{document.getElementById('reset').disabled}, 'the key 0 zooms out');
  },

  views => sub {
    my ($shots) = @arguments;
    for my $width (1280, 400) {
      for my $scheme (qw(light dark)) {
        for my $view (@views) {
          $browser->scheme($scheme);
          open_page($width, 900, "#tab=$view");
          wait_until("!document.getElementById('view-$view').hidden", "the view $view is shown");
          my $content = $view =~ /curves|speed/ ? "#$view canvas" : $view eq 'hosts' ? '#hosts table, #hosts .note' : "#$view table";
          wait_until("document.querySelectorAll('$content').length > 0", "$view has contents");
          die "$view at $width px is too wide\n" if $browser->value('document.documentElement.scrollWidth > innerWidth');
          $browser->shoot("$shots/$view-$width-$scheme.png") if $shots;
        }
      }
    }
    my $options = $browser->value(q{(async () => { document.getElementById('tab-options').click();
      await new Promise(done => setTimeout(done, 500)); return [...document.querySelectorAll('#options tr.differs')].map(row => row.cells[0].textContent).join() })()});
    die "what differs: $options\n" unless $options =~ /\blr\b/;
  },

  markup => sub {
    open_page(1280, 900);
    for my $view (@views) {
      $browser->value("document.getElementById('tab-$view').click(); 1");
      my $text = { curves => 'src=x', speed => 'src=x', hosts => 'src=x', samples => '<script>', options => '<b>x', events => 'src=x' }->{$view};
      wait_until("document.querySelector('.layout').innerText.includes('$text') || document.getElementById('view-$view').innerText.includes('$text')",
        "$view shows the text");
    }
    die "markup was interpreted\n" if $browser->value(q{window.bad || document.querySelector('main img, main script, #run-list img') ? 1 : 0});
  },

  odd => sub {
    open_page(1280, 900, '#extra=constructor,__proto__');
    my %text = (curves => 'constructor', speed => 'one, step 6', hosts => 'h2', samples => 'shown', options => 'toString', events => 'toString');
    for my $view (@views) {
      $browser->value("document.getElementById('tab-$view').click(); 1");
      wait_until("document.getElementById('view-$view').innerText.includes('$text{$view}')", "$view is shown");
      die "$view: " . $browser->value(q{document.getElementById('status').textContent}) . "\n"
        if $browser->value(q{document.getElementById('status').textContent});
    }
    die "a file of the run has changed the prototype of objects\n" if $browser->value('({}).mean !== undefined');
  },

  extra => sub {
    open_page(1280, 900, '#extra=' . join(',', map { "extra$_" } 0 .. 17));
    wait_until("($run('one')).then(run => run?.series.train?.columns.extra17?.mean.at(-1) === 17)", 'the last curve is there');
  },

  texts => sub {
    open_page(1280, 900);
    my $titles = q{[...document.querySelectorAll('#curves h3, #curves h2')].map(head => head.textContent).join('; ')};
    wait_until("($titles).includes('Validation macro-F1') && ($titles).includes('Texts per second')", 'charts of a classifier');
    my $all = $browser->value($titles);
    my $order = 'Training loss (NLL); Validation loss (NLL); Validation macro-F1; Validation accuracy; Texts per second; Learning rate; Gradient norm';
    die "charts: $all\n" if $all ne $order;
  },

  both => sub {
    open_page(1280, 900);
    my $titles = q{[...document.querySelectorAll('#curves h3, #curves h2')].map(head => head.textContent).join('; ')};
    wait_until("['Validation macro-F1', 'Validation BLEU', 'Target tokens per second'].every(name => ($titles).includes(name))", 'charts of both tasks');
    my $all = $browser->value($titles);
    my $order = 'Training loss (NLL); Validation loss (NLL); Validation BLEU; Validation macro-F1; Validation accuracy; '
      . 'Target tokens per second; Texts per second; Learning rate; Gradient norm';
    die "charts: $all\n" if $all ne $order;
  },

  # The work of showing something does not grow with runs times columns: counts how often the page goes
  # through the selected runs, and reads the columns of one, when a control is changed.
  many => sub {
    my ($runs) = @arguments;
    open_page(1280, 900);
    wait_until("import('/store.js').then(store => store.runs.size === $runs)", 'all runs are listed');
    $browser->value(q{document.getElementById('select-all').click(); 1});
    wait_until("import('/store.js').then(store => store.selectedRuns().length === $runs && store.selectedRuns().every(run => run.info))",
      'the columns of all runs are known');
    wait_until(q{document.getElementById('add-curve').options.length > 40}, 'other columns are offered');
    my ($looks, $reads) = @{ $browser->value(q{import('/store.js').then(({ settings, runs }) => {
      let looks = 0, reads = 0;
      let { selected } = settings;
      Object.defineProperty(settings, 'selected', { get: () => { looks++; return selected; }, set: value => { selected = value; } });
      for (const run of runs.values()) {
        let { info } = run;
        Object.defineProperty(run, 'info', { get: () => { reads++; return info; }, set: value => { info = value; } });
      }
      const log = document.getElementById('log');
      log.checked = true;
      log.dispatchEvent(new Event('change'));
      return [looks, reads / runs.size];
    })}) };
    die "the page has not looked at the selected runs\n" unless $looks && $reads;
    die "a change of a control goes $looks times through the selected runs\n" if $looks > 16;
    die "a change of a control reads the columns of each run $reads times\n" if $reads > 8;
  },

  token => sub {
    open_page(1280, 900);
    wait_until(q{!location.href.includes('token')}, 'the token is gone from the address');
    wait_until(steps('one') . '.then(steps => steps.length === 10)', 'the curve is there');
    die "a script can read the token\n" if $browser->value('document.cookie') ne '';
    $browser->value('location.reload(); 1');
    wait_until(q{document.querySelectorAll('#run-list li').length > 0}, 'the page works after a reload');
  },
);

my $failed = !eval { $checks{$check}->(); check_clean(); 1 };
my $why = $@;
$browser->shoot("$ENV{SHOTS}/failed-$check.png") if $failed && $ENV{SHOTS};
$browser->stop;
die "$check: $why" if $failed;
